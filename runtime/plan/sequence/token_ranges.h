#pragma once

// SequenceKind: how ranks that split the same samples compute attention over full samples.
// FindTokens returns the tokens of each rank. Pure. Thread-safe.

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::sequence_parallel {

enum class SequenceKind {
  kUlysses,  // each has some of the heads, over all tokens (arXiv 2309.14509)
  kRing,     // each has all heads of its own tokens; K and V circulate (arXiv 2310.01889)
};

// Reads "ulysses" or "ring".
StatusOr<SequenceKind> ParseSequenceKind(std::string_view name);

// Consecutive tokens of a sample.
struct TokenRange {
  std::int64_t first = 0, count = 0;

  std::int64_t end() const { return first + count; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// Returns the tokens of a sample that `rank` of `ranks` has, in order, no range empty. Under
// Ulysses each rank has one range. In a ring a token attends only to earlier ones, so later ranges
// cost more: the sample is split into 2 * ranks ranges, and each rank has one from the front and
// the one equally far from the end. Requires that `ranks` divides `tokens`.
//
// If attention takes `chunk` tokens of a sample at a time (chunk_plan.h, Ulysses only), a rank
// has one range of each chunk, so that chunks are exchanged one by one. `ranks` must then divide
// `chunk`, too. 0: all tokens at once.
std::vector<TokenRange> FindTokens(SequenceKind kind, std::int64_t tokens, int rank, int ranks,
                                   std::int64_t chunk = 0);

}  // namespace ds::sequence_parallel
