#pragma once

// LongestRun: the length of the longest document in a row of document numbers.
//
// Pure; safe from any thread.

#include <algorithm>
#include <cstdint>
#include <span>

namespace ds::data {

// Returns the largest count of equal numbers next to each other; 0 for an empty row.
inline std::int64_t LongestRun(std::span<const std::int64_t> numbers) {
  std::int64_t longest = 0, run = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    run = i > 0 && numbers[i] == numbers[i - 1] ? run + 1 : 1;
    longest = std::max(longest, run);
  }
  return longest;
}

}  // namespace ds::data
