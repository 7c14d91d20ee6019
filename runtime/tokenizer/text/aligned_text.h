#pragma once

// AlignedText: a text on its way from what the user gave to what the model reads, which knows of
// each of its bytes which bytes of the user's text it stands for.
//
// Without alignment (`aligned` false) the same changes cost only the text; nothing asks where it
// came from then. The rules by which inserted and removed characters are aligned are those of
// Hugging Face's NormalizedString, so that offsets are equal to its offsets.
//
// Texts are UTF-8 of less than 4 GiB; every function keeps them so. Threads: a plain value.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/text/span.h"

namespace ds::tokenizer {

// One character of a new text. `shift` is 0 when it takes the place of a character of the old one,
// 1 when it is inserted behind the previous one, and -N when it takes a place and the N old
// characters behind that are removed.
struct Edit {
  char32_t code_point = 0;
  int shift = 0;
};

// A part of a text that a pattern has matched, or what lies between two of them.
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

  // The bytes of the user's text that [begin, end) stands for. Requires aligned() and begin < end.
  Span Origin(std::uint32_t begin, std::uint32_t end) const {
    return {origins_[begin].begin, origins_[end - 1].end};
  }

  // The part [begin, end), which keeps its alignment.
  AlignedText Slice(std::uint32_t begin, std::uint32_t end) const;
  void Append(const AlignedText& more);

  // Makes the text these characters; the first `removed_at_start` old characters are gone.
  void Transform(const std::vector<Edit>& edits, std::size_t removed_at_start);
  void Filter(const std::function<bool(char32_t)>& keep);
  void Map(const std::function<char32_t(char32_t)>& map);
  // Nothing happens to an empty text.
  void Prepend(std::string_view prefix);
  // Puts `content` in the place of every match; `matches` cover the text in its order.
  void Replace(const std::vector<Match>& matches, std::string_view content);
  // Makes the text these in a row; each stands for the bytes [begin, end) of the old text.
  struct Rewritten {
    std::string text;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  void Rewrite(const std::vector<Rewritten>& rewritten);
  // Removes white space at the ends.
  void Strip(bool left, bool right);
  // Puts a character for each byte, letters[byte], as GPT-2 does. Requires letters of one or two
  // bytes of UTF-8.
  void BytesToLetters(const std::string (&letters)[256]);

 private:
  std::string text_;
  std::vector<Span> origins_;  // of each byte when aligned
  bool aligned_ = false;
};

}  // namespace ds::tokenizer
