#pragma once

// Truncation: how many tokens a text, or a pair, may have; "truncation" of a tokenizer.json. Pure.

#include <optional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/post_processors/encoding.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

enum class TruncationStrategy { kLongestFirst, kOnlyFirst, kOnlySecond };

struct Truncation {
  std::size_t max_length = 512;  // with the special tokens
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
  bool from_left = false;  // the tokens at the beginning go
};

StatusOr<Truncation> ReadTruncation(const JsonObject& component);

// Shortens one encoding or two so that they have `max_length` tokens with the `added` ones. What
// cannot be shortened so far is an error.
Status Truncate(const Truncation& truncation, std::size_t added, std::vector<Encoding>* parts);

}  // namespace ds::tokenizer
