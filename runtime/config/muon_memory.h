#pragma once

// Computes which parameters Muon updates and how much memory its update takes. Does not need
// LibTorch, so the planner uses it as well as Muon itself.

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

namespace ds::config {

// Returns true if Muon updates a matrix of this name: the name contains neither "embed" nor
// "lm_head", in any case. This is DeepSpeed's rule, which takes GPT-2's wte for a hidden matrix.
inline bool IsMuonName(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("embed") == std::string::npos && lower.find("lm_head") == std::string::npos;
}

// Returns the peak number of elements that orthogonalizing a matrix takes: two iterates and two
// squares of its smaller side, or, on the Gram matrix, one iterate and five squares.
inline std::int64_t CountIterationElements(std::int64_t rows, std::int64_t columns, bool gram) {
  const std::int64_t side = std::min(rows, columns), iterate = rows * columns;
  const std::int64_t plain = 2 * iterate + 2 * side * side;
  return gram && rows != columns ? std::max(plain, iterate + 5 * side * side) : plain;
}

// The part of a buffer that Muon updates at once. Sizes are in elements.
struct MuonSlice {
  std::int64_t views = 0;  // of this rank
  std::int64_t shard = 0;  // the shard that contains the views
  std::int64_t full = 0;   // the full buffer
  bool sharded = false;
  std::int64_t iteration = 0;  // CountIterationElements of the largest matrix
};

// Returns the elements that the update takes in addition to the part itself: `u`, the full `u` if
// it is sharded, the result, and, one after the other, an iteration and this rank's shard of the
// result.
inline std::int64_t CountMuonElements(const MuonSlice& part) {
  if (!part.sharded) return 2 * part.views + part.iteration;
  return part.views + 2 * part.full + std::max(part.iteration, part.shard);
}

}  // namespace ds::config
