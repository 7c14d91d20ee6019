#pragma once

// The bytes that `test_rank flood` writes and tests expect: every value, lines of all lengths.

#include <cstddef>
#include <cstdint>
#include <string>

namespace ds::testing {

inline std::string Flood(int rank, std::size_t bytes) {
  std::string text;
  text.reserve(bytes);
  std::uint64_t state = static_cast<std::uint64_t>(rank) + 1;
  while (text.size() < bytes) {  // xorshift64
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    text.push_back(static_cast<char>(state >> 32));
  }
  return text;
}

}  // namespace ds::testing
