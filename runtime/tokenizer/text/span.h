#pragma once

// Span: a range of bytes of a text, as tokens know where they come from.

#include <cstdint>

namespace ds::tokenizer {

struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

}  // namespace ds::tokenizer
