#include "cli/launch/redacted_words.h"

#include <algorithm>
#include <string_view>

#include "cli/launch/secrets.h"

namespace ds::cli {
namespace {

// A marker that matches every token shape: it is redacted in the position of a secret, and kept
// elsewhere.
constexpr std::string_view kAnySecret = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

std::string& WordOf(const ValuePlace& value, std::vector<std::string>* words) {
  return words->at(words->size() - 1 - value.words_behind);
}

std::string ReplaceAll(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

int CountOf(std::string_view what, std::string_view text) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; ++count) {
    at += what.size();
  }
  return count;
}

// Returns kRedacted, which is at `at`, with the text before it, back to a blank. If a blank
// precedes it directly, the previous word is included.
std::string ShowAround(const std::string& text, std::size_t at) {
  constexpr char kBlanks[] = " \t\n";
  std::size_t start = text.find_last_of(kBlanks, at) + 1;
  if (start == at && start > 1) start = text.find_last_of(kBlanks, start - 2) + 1;
  return text.substr(start, at + kRedacted.size() - start);
}

// Returns for each word whether it contains kRedacted in the position of a secret.
std::vector<bool> FindHidden(std::vector<std::string> words,
                             const std::vector<ValuePlace>& values) {
  std::vector<bool> hidden(words.size());
  for (const ValuePlace& value : values) {
    const bool is_mark =
        value.bytes == kRedacted.size() && WordOf(value, &words).ends_with(kRedacted);
    if (is_mark) hidden[words.size() - 1 - value.words_behind] = true;
  }
  for (std::string& word : words) word = ReplaceAll(std::move(word), kRedacted, kAnySecret);
  const std::vector<std::string> shown = RedactWords(words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (CountOf(kAnySecret, shown[i]) < CountOf(kAnySecret, words[i])) hidden[i] = true;
  }
  return hidden;
}

Status RefuseRedacted(const std::vector<std::string>& words,
                      const std::vector<ValuePlace>& values) {
  const std::vector<bool> hidden = FindHidden(words, values);
  std::string found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!hidden[i]) continue;
    const std::string shown = ShowAround(words[i], words[i].find(kRedacted));
    const bool behind_flag = i > 0 && words[i - 1].starts_with('-') && words[i].starts_with(shown);
    found += (found.empty() ? "" : ", ") + (behind_flag ? words[i - 1] + " " : "") + shown;
  }
  if (found.empty()) return OkStatus();
  return InvalidArgumentError(
      "this was copied from where dsrun hides secrets and other values: " + found +
      "; give the values themselves again (-x NAME takes the one of this shell)");
}

}  // namespace

RedactedWords HideSecrets(const std::vector<std::string>& words,
                          const std::vector<ValuePlace>& values) {
  std::vector<std::string> hidden = words;
  for (const ValuePlace& value : values) {
    std::string& word = WordOf(value, &hidden);
    word.replace(word.size() - value.bytes, value.bytes, kRedacted);
  }
  RedactedWords redacted{.words = RedactWords(hidden), .places = {}};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (redacted.words[i] != words[i]) redacted.places.push_back(i);
  }
  return redacted;
}

StatusOr<RedactedWords> RedactCommandLine(const std::vector<std::string>& words,
                                          const std::vector<ValuePlace>& values) {
  DS_RETURN_IF_ERROR(RefuseRedacted(words, values));
  return HideSecrets(words, values);
}

}  // namespace ds::cli
