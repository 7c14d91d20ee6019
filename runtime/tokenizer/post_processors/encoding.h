#pragma once

// Encoding holds the tokens of a text, or of a pair of texts.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tokenizer/text/span.h"

namespace ds::tokenizer {

struct Encoding {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint32_t>
      type_ids;  // which of a pair's texts, as the tokenizer's file numbers them
  std::vector<std::uint8_t> is_special;  // 1: added by the post-processor, not from the text

  // Filled on request: the byte range of the text for each token (0 to 0 for special ones), and the
  // token itself.
  std::vector<Span> offsets;
  std::vector<std::string> tokens;
};

}  // namespace ds::tokenizer
