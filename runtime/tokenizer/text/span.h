#pragma once

// Span is a range of bytes of a text; tokens store their source as a span.

#include <cstdint>

namespace ds::tokenizer {

struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

}  // namespace ds::tokenizer
