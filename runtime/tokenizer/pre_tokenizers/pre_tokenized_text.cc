#include "runtime/tokenizer/pre_tokenizers/pre_tokenized_text.h"

#include <algorithm>

#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

// Joins matches by the behavior. Parts that are still `matched` afterwards are removed.
void JoinMatches(SplitBehavior behavior, std::vector<Match>* matches) {
  if (behavior == SplitBehavior::kRemoved) return;
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(matches->begin(), matches->end());
  std::size_t kept = 0;
  bool previous = false;  // whether the preceding part matched
  for (std::size_t i = 0; i < matches->size(); ++i) {
    const Match part = (*matches)[i];
    bool joins = false;
    if (behavior == SplitBehavior::kContiguous) joins = part.matched == previous;
    if (behavior == SplitBehavior::kMergedWithPrevious || backwards) {
      joins = part.matched && !previous;
    }
    previous = part.matched;
    if (joins && kept > 0) {
      Match& last = (*matches)[kept - 1];
      (backwards ? last.begin : last.end) = backwards ? part.begin : part.end;
    } else {
      (*matches)[kept++] = {part.begin, part.end, false};
    }
  }
  matches->resize(kept);
  if (backwards) std::reverse(matches->begin(), matches->end());
}

}  // namespace

void PreTokenizedText::Add(const AlignedText& text, std::uint32_t token) {
  if (text.empty()) return;
  const std::uint32_t begin = text_.size();
  text_.Append(text);
  list_.push_back({begin, text_.size(), token});
}

Status PreTokenizedText::Split(const FindMatches& find, SplitBehavior behavior, bool invert) {
  std::vector<Word> words;
  words.reserve(list_.size() + text_.size() / 4);
  std::vector<Match> matches;
  for (const Word& word : list_) {
    if (word.token != kNoToken) {
      words.push_back(word);
      continue;
    }
    DS_RETURN_IF_ERROR(find(TextOf(word), &matches));
    if (invert) {
      for (Match& match : matches) match.matched = !match.matched;
    }
    if (behavior != SplitBehavior::kIsolated) JoinMatches(behavior, &matches);
    for (const Match& match : matches) {
      const bool removed = match.matched && behavior == SplitBehavior::kRemoved;
      if (removed || match.begin == match.end) continue;
      words.push_back({word.begin + match.begin, word.begin + match.end, kNoToken});
    }
  }
  list_ = std::move(words);
  return OkStatus();
}

void PreTokenizedText::SplitTokens(
    const std::function<std::pair<std::size_t, std::uint32_t>(std::string_view text)>& starts) {
  std::vector<Word> words;
  for (const Word& word : list_) {
    Word open{word.begin, word.begin, kNoToken};  // the text before the next token
    for (std::uint32_t at = word.begin; at < word.end && word.token == kNoToken;) {
      const auto [length, id] = starts(TextOf({at, word.end, kNoToken}));
      if (length == 0) {
        at += static_cast<std::uint32_t>(Utf8Length(text_.text()[at]));
        open.end = at;
        continue;
      }
      if (open.begin < open.end) words.push_back(open);
      words.push_back({at, at + static_cast<std::uint32_t>(length), id});
      at += static_cast<std::uint32_t>(length);
      open = {at, at, kNoToken};
    }
    if (word.token != kNoToken) open = word;
    if (open.begin < open.end) words.push_back(open);
  }
  list_ = std::move(words);
}

void PreTokenizedText::Rewrite(const std::function<void(AlignedText* word, bool first)>& rewrite) {
  PreTokenizedText rewritten;
  for (const Word& word : list_) {
    AlignedText part = text_.Slice(word.begin, word.end);
    if (word.token == kNoToken) {
      const bool first = !text_.aligned() || text_.Origin(word.begin, word.begin + 1).begin == 0;
      rewrite(&part, first);
    }
    rewritten.Add(part, word.token);
  }
  *this = std::move(rewritten);
}

FindMatches MatchCharacters(bool (*is)(char32_t character)) {
  return [is](std::string_view word, std::vector<Match>* matches) {
    matches->clear();
    std::uint32_t covered = 0;
    std::uint32_t at = 0;
    ForEachCharacter(word, [&](char32_t character) {
      const auto end = at + static_cast<std::uint32_t>(Utf8Length(word[at]));
      if (is(character)) {
        if (covered < at) matches->push_back({covered, at, false});
        matches->push_back({at, end, true});
        covered = end;
      }
      at = end;
    });
    if (covered < at || word.empty()) matches->push_back({covered, at, false});
    return OkStatus();
  };
}

}  // namespace ds::tokenizer
