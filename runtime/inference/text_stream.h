#pragma once

// TextStream: the text of tokens as they come, in pieces that are characters: a token may end in
// the middle of one, and a decoder may join what it gets with what comes next.
//
// Threads: one. The tokenizer outlives it.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/tokenizer.h"

namespace ds::inference {

class TextStream {
 public:
  // Null: a token is a byte.
  explicit TextStream(const tokenizer::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Takes a token; what is certain now of the text behind what Add has returned so far. Special
  // tokens have no text.
  StatusOr<std::string> Add(std::int64_t token);
  // The rest: an unfinished character as U+FFFD.
  StatusOr<std::string> Finish();

  // All text so far, what Add holds back included.
  StatusOr<std::string> Text() const;

 private:
  std::string TakeUpTo(const std::string& text, std::size_t end);

  const tokenizer::Tokenizer* tokenizer_;
  std::vector<std::uint32_t> ids_;
  std::string shown_;
};

}  // namespace ds::inference
