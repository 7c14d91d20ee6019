#pragma once

// AlignedText is a text on its way from the user's input to the model. For each of its bytes it
// knows the bytes of the user's text that it stands for.
//
// Without alignment (`aligned` false) the same operations cover only the text, and cost less;
// origins are then not available. Inserted and removed characters are aligned by the rules of
// Hugging Face's NormalizedString, so that offsets equal its offsets.
//
// Texts are UTF-8 of less than 4 GiB; every function preserves this. Not thread-safe: a plain
// value.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/text/span.h"

namespace ds::tokenizer {

// One character of a new text. `shift` is 0 if it replaces a character of the old text, 1 if it is
// inserted after the previous character, and -N if it replaces a character and the N old characters
// after that one are removed.
struct Edit {
  char32_t code_point = 0;
  int shift = 0;
};

// A match of a pattern in a text, or the gap between two matches.
struct Match {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool matched = false;
};

class AlignedText {
 public:
  AlignedText() = default;
  AlignedText(std::string_view text, bool aligned);

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  bool aligned() const { return aligned_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(text_.size()); }

  // Returns the bytes of the user's text that [begin, end) stands for. Requires aligned() and begin
  // < end.
  Span Origin(std::uint32_t begin, std::uint32_t end) const {
    return {origins_[begin].begin, origins_[end - 1].end};
  }

  // Returns the part [begin, end), with its alignment.
  AlignedText Slice(std::uint32_t begin, std::uint32_t end) const;
  void Append(const AlignedText& more);

  // Replaces the text by these characters; the first `removed_at_start` old characters are removed.
  void Transform(const std::vector<Edit>& edits, std::size_t removed_at_start);
  void Filter(const std::function<bool(char32_t)>& keep);
  void Map(const std::function<char32_t(char32_t)>& map);
  // Does nothing to an empty text.
  void Prepend(std::string_view prefix);
  // Replaces every match by `content`; `matches` cover the text in order.
  void Replace(const std::vector<Match>& matches, std::string_view content);
  // Replaces the text by these texts in a row; each stands for the bytes [begin, end) of the old
  // text.
  struct Rewritten {
    std::string text;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  void Rewrite(const std::vector<Rewritten>& rewritten);
  // Removes white space at the ends.
  void Strip(bool left, bool right);
  // Replaces each byte by the character letters[byte], as GPT-2 does. Requires letters of one or
  // two bytes of UTF-8.
  void BytesToLetters(const std::string (&letters)[256]);

 private:
  std::string text_;
  std::vector<Span> origins_;  // of each byte when aligned
  bool aligned_ = false;
};

}  // namespace ds::tokenizer
