#pragma once

// TextStream: decodes tokens incrementally to text of complete characters. A token may end in the
// middle of a character, and a decoder may join a token with later tokens.
//
// Not thread-safe. The tokenizer must outlive this object.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/tokenizer.h"

namespace ds::inference {

class TextStream {
 public:
  // Null: each token is a byte.
  explicit TextStream(const tokenizer::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Adds a token and returns the new text that later tokens cannot change. Special tokens have no
  // text.
  StatusOr<std::string> Add(std::int64_t token);
  // Returns the rest; an unfinished character becomes U+FFFD.
  StatusOr<std::string> Finish();

  // Returns all text so far, including text that Add has not returned yet.
  StatusOr<std::string> Text() const;

 private:
  std::string TakeUpTo(const std::string& text, std::size_t end);

  const tokenizer::Tokenizer* tokenizer_;
  std::vector<std::uint32_t> ids_;
  std::string shown_;
};

}  // namespace ds::inference
