#pragma once

// SequenceKind says how ranks that have parts of the same samples compute attention, which looks at
// whole samples; FindTokens, which tokens each of them has. Pure; safe from any thread.

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::sequence_parallel {

enum class SequenceKind {
  kUlysses,  // each has some of the heads, over all tokens (arXiv 2309.14509)
  kRing,  // each has all heads of its own tokens, and keys and values go round (arXiv 2310.01889)
};

// Reads "ulysses" or "ring".
StatusOr<SequenceKind> ParseSequenceKind(std::string_view name);

// Tokens of a sample that lie side by side.
struct TokenRange {
  std::int64_t first = 0, count = 0;

  std::int64_t end() const { return first + count; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// The tokens that `rank` of `ranks` has of a sample, in their order, none empty. Of Ulysses each
// has one stretch. Of a ring a token sees only those before it, so that later stretches cost more:
// the sample is cut into twice as many stretches as ranks, and each rank has one of the front and
// the one as far from the end. Requires that `ranks` divides `tokens`.
//
// A rank of Ulysses whose attention takes `portion` tokens of a sample at a time (portion_plan.h)
// has one stretch of each portion, so that they are exchanged one by one: `ranks` divides that,
// too. 0: all at once.
std::vector<TokenRange> FindTokens(SequenceKind kind, std::int64_t tokens, int rank, int ranks,
                                   std::int64_t portion = 0);

}  // namespace ds::sequence_parallel
