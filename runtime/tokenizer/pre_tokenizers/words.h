#pragma once

// Words: a text that is being cut into words. Cutting never moves text; what is rewritten is
// rewritten word by word.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/text/aligned_text.h"

namespace ds::tokenizer {

// A word that is no added token.
inline constexpr std::uint32_t kNoToken = 0xFFFFFFFF;

struct Word {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t token = kNoToken;  // an added token, which nothing cuts or rewrites
};

// SplitBehavior says what becomes of a match; "the-final--countdown" is cut at "-" into:
enum class SplitBehavior {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

// Fills `matches` with what is in a word; they cover it in order.
using FindMatches = std::function<Status(std::string_view word, std::vector<Match>* matches)>;

class Words {
 public:
  // Starts with nothing.
  Words() = default;

  // Adds a word at the end; nothing when it is empty.
  void Add(const AlignedText& text, std::uint32_t token = kNoToken);

  const AlignedText& text() const { return text_; }
  const std::vector<Word>& list() const { return list_; }
  std::string_view TextOf(const Word& word) const {
    return std::string_view(text_.text()).substr(word.begin, word.end - word.begin);
  }

  // Cuts every word that is no token; `invert` takes matches for gaps and gaps for matches.
  Status Split(const FindMatches& find, SplitBehavior behavior, bool invert);

  // Takes tokens out of every word that is none: `starts` tells the length and the id of the one
  // that a text begins with, or the length 0.
  void SplitTokens(
      const std::function<std::pair<std::size_t, std::uint32_t>(std::string_view text)>& starts);

  // Rewrites every word that is no token; `first` tells that it begins where the user's text does.
  // Requires an aligned text when `first` is looked at.
  void Rewrite(const std::function<void(AlignedText* word, bool first)>& rewrite);

 private:
  AlignedText text_;
  std::vector<Word> list_;  // none is empty
};

// The find for Split that matches single characters.
FindMatches CharactersThat(bool (*is)(char32_t character));

}  // namespace ds::tokenizer
