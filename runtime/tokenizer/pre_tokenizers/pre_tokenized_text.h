#pragma once

// PreTokenizedText is a text that is being split into words. Splitting never moves text; rewriting
// is done word by word.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/text/aligned_text.h"

namespace ds::tokenizer {

// Marks a word that is not an added token.
inline constexpr std::uint32_t kNoToken = 0xFFFFFFFF;

struct Word {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t token = kNoToken;  // an added token, never split or rewritten
};

// SplitBehavior selects the treatment of a match. "the-final--countdown" split at "-" becomes:
enum class SplitBehavior {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

// Fills `matches` with the matches and gaps of a word, which cover it in order.
using FindMatches = std::function<Status(std::string_view word, std::vector<Match>* matches)>;

class PreTokenizedText {
 public:
  // Creates an empty list.
  PreTokenizedText() = default;

  // Appends a word; does nothing if it is empty.
  void Add(const AlignedText& text, std::uint32_t token = kNoToken);

  const AlignedText& text() const { return text_; }
  const std::vector<Word>& list() const { return list_; }
  std::string_view TextOf(const Word& word) const {
    return std::string_view(text_.text()).substr(word.begin, word.end - word.begin);
  }

  // Splits every word that is not a token; `invert` swaps matches and gaps.
  Status Split(const FindMatches& find, SplitBehavior behavior, bool invert);

  // Splits tokens off every word that is not a token. `starts` returns the length and the id of the
  // token that a text begins with, or the length 0.
  void SplitTokens(
      const std::function<std::pair<std::size_t, std::uint32_t>(std::string_view text)>& starts);

  // Rewrites every word that is not a token. `first` is true if the word begins at the start of the
  // user's text. Requires an aligned text if `rewrite` uses `first`.
  void Rewrite(const std::function<void(AlignedText* word, bool first)>& rewrite);

 private:
  AlignedText text_;
  std::vector<Word> list_;  // no empty words
};

// Returns a FindMatches for Split that matches single characters.
FindMatches MatchCharacters(bool (*is)(char32_t character));

}  // namespace ds::tokenizer
