#pragma once

// Truncation limits the number of tokens of a text or a pair; "truncation" of a tokenizer.json.
// Pure.

#include <cstddef>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/post_processors/encoding.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

enum class TruncationStrategy { kLongestFirst, kOnlyFirst, kOnlySecond };

struct Truncation {
  std::size_t max_length = 512;  // including the special tokens
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
  bool from_left = false;  // removes tokens at the beginning
};

StatusOr<Truncation> ReadTruncation(const JsonObject& component);

// Shortens one or two encodings so that they have `max_length` tokens, including `added` special
// tokens. Fails if they cannot be shortened that far.
Status Truncate(const Truncation& truncation, std::size_t added, std::vector<Encoding>* parts);

}  // namespace ds::tokenizer
