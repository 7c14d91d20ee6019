#pragma once

// Elementwise reduction of several ranks' arrays into one array, in rank order.
//
// output[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ...; an average is that sum
// divided by the number of sources. bf16 and fp16 are converted to fp32, reduced, and rounded once
// (to nearest, ties to even). bool: sum and max are "or", min and product are "and". The result
// depends neither on the instruction set nor on how a caller splits its arrays.

#include <cstddef>
#include <span>

#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

// Requires: op != kAvg unless IsFloatingPoint(type). `output` may be one of the sources; no other
// overlap.
void ReduceInRankOrder(std::byte* output, std::span<const std::byte* const> sources,
                       std::size_t count, ElementType type, ReduceOp op);

// Returns the accumulator type of a reduction of `type`: fp32 for bf16 and fp16, else `type`.
ElementType AccumulatorType(ElementType type);

// One part of a reduction that groups of consecutive ranks do one after the other. Each part
// continues from the previous one's result, so the final bits equal those of one reduction over all
// ranks.
struct PartialReduction {
  const std::byte* before = nullptr;  // output of the previous part; null: this is the first
  int ranks = 0;                      // last part: ranks of all parts together; others: 0
};
// Writes elements of the accumulator type, or of `type` in the last part. `output` may be
// `before` or one of the sources if its elements are of the same size.
void ContinueReduction(std::byte* output, std::span<const std::byte* const> sources,
                       std::size_t count, ElementType type, ReduceOp op,
                       const PartialReduction& partial);

}  // namespace ds::comm
