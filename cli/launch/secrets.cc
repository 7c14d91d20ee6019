#include "cli/launch/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

namespace ds::cli {
namespace {

template <std::size_t N>
bool Contains(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A name is secret if it has one of these as a word, or at the end of a word.
constexpr std::array<std::string_view, 9> kSecretEndings = {
    "SECRET",      "PASSWORD",  "PASSWD",        "PASSPHRASE", "CREDENTIAL",
    "CREDENTIALS", "ACCESSKEY", "AUTHORIZATION", "SECRETKEY"};
// A name is also secret if it ends with one of these words,
constexpr std::array<std::string_view, 10> kLastWords = {
    "TOKEN", "KEY", "APIKEY", "PAT", "PASS", "PWD", "PW", "AUTH", "COOKIE", "SIGNATURE"};
constexpr std::array<std::string_view, 2> kLastEndings = {"TOKEN", "APIKEY"};
// unless it contains one of these.
constexpr std::array<std::string_view, 24> kHarmlessWords = {
    "PAD",    "EOS",   "BOS",   "UNK",    "SEP",  "CLS",   "MASK",    "SPECIAL",
    "START",  "END",   "IMAGE", "TEXT",   "SORT", "LABEL", "PRIMARY", "FOREIGN",
    "PUBLIC", "CACHE", "GROUP", "OUTPUT", "DATA", "INPUT", "TARGET",  "FEATURE"};
// Names that end with one of these contain the path of a secret.
constexpr std::array<std::string_view, 3> kPlaces = {"FILE", "PATH", "DIR"};

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// Splits "aws_secret-key2" into AWS, SECRET, KEY; trailing numbers are dropped.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '_' || c == '-' || c == '.') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  while (!words.empty()) {
    while (!words.back().empty() && IsDigit(words.back().back())) words.back().pop_back();
    if (!words.back().empty()) break;
    words.pop_back();
  }
  return words;
}

template <std::size_t N>
bool EndsWithOneOf(std::string_view word, const std::array<std::string_view, N>& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return word.ends_with(ending); });
}

// True for "-v" or "--name...". A word like "-Xa1b2c3" may be a secret with a leading dash.
bool IsFlag(std::string_view word) {
  if (word.starts_with("--")) return word.size() == 2 || IsLetter(word[2]);
  return word == "-" || (word.size() == 2 && word[0] == '-' && IsLetter(word[1]));
}

// Returns the name in "NAME=VALUE" or "--name"; "" for a text that begins otherwise.
std::string_view FindName(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
    return IsDigit(c) || IsLetter(c) || c == '_' || c == '-' || c == '.';
  });
  return is_name ? name.substr(std::min(name.find_first_not_of('-'), name.size())) : "";
}

// Returns the start of the value in a word that follows `previous` if its name is secret; else
// npos.
std::size_t FindSecret(std::string_view previous, std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals != word.npos && IsSecretName(FindName(word))) return equals + 1;
  const bool follows_name = previous.starts_with('-') && previous.find('=') == previous.npos &&
                            IsSecretName(FindName(previous));
  return follows_name && !IsFlag(word) ? 0 : word.npos;
}

// Returns for each word where its hidden end begins; npos if it is shown.
std::vector<std::size_t> FindHidden(const std::vector<std::string>& words,
                                    const std::vector<ValuePosition>& values) {
  std::vector<std::size_t> begins(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    begins[i] = FindSecret(i == 0 ? "" : words[i - 1], words[i]);
  }
  for (const ValuePosition& value : values) {
    const std::size_t index = words.size() - 1 - value.words_after;
    begins.at(index) = words.at(index).size() - value.bytes;
  }
  return begins;
}

Status RefuseRedacted(const std::vector<std::string>& words,
                      const std::vector<std::size_t>& begins) {
  std::string found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (begins[i] == std::string::npos || words[i].substr(begins[i]) != kRedacted) continue;
    const bool after_flag = i > 0 && words[i - 1].starts_with('-') && !words[i].starts_with('-');
    found += (found.empty() ? "" : ", ") + (after_flag ? words[i - 1] + " " : "") + words[i];
  }
  if (found.empty()) return OkStatus();
  return InvalidArgumentError(
      "this was copied from output in which dsrun hides secrets and other values: " + found +
      "; give the values themselves again (-x NAME takes the value of this shell)");
}

}  // namespace

bool IsSecretName(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  if (words.empty() || (words.size() > 1 && Contains(kPlaces, words.back()))) return false;
  for (const std::string& word : words) {
    if (EndsWithOneOf(word, kSecretEndings)) return true;
  }
  if (words.size() == 1 && words[0].ends_with("PWD")) return false;  // the working directory
  if (words.size() == 1 && words[0] == "SIG") return true;           // of a URL of Azure
  const bool harmless = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return Contains(kHarmlessWords, word);
  });
  return !harmless &&
         (Contains(kLastWords, words.back()) || EndsWithOneOf(words.back(), kLastEndings));
}

RedactedWords HideSecrets(const std::vector<std::string>& words,
                          const std::vector<ValuePosition>& values) {
  const std::vector<std::size_t> begins = FindHidden(words, values);
  RedactedWords redacted{.words = words, .indices = {}};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (begins[i] == std::string::npos) continue;
    redacted.words[i].replace(begins[i], std::string::npos, kRedacted);
    redacted.indices.push_back(i);
  }
  return redacted;
}

StatusOr<RedactedWords> RedactCommandLine(const std::vector<std::string>& words,
                                          const std::vector<ValuePosition>& values) {
  DS_RETURN_IF_ERROR(RefuseRedacted(words, FindHidden(words, values)));
  return HideSecrets(words, values);
}

}  // namespace ds::cli
