#pragma once

// Elementwise reduction of several ranks' arrays into one, in rank order.
//
// output[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ...; an average is that sum
// divided by the number of sources. bf16 and fp16 are widened to fp32, reduced, and rounded once
// (to nearest, ties to even). bool: sum and max are "or", min and product are "and". The result
// depends neither on the instruction set in use nor on how a caller cuts its arrays.

#include <cstddef>
#include <span>

#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

// Requires: op != kAvg unless IsFloatingPoint(type). `output` may be one of the sources; no other
// overlap.
void ReduceInRankOrder(std::byte* output, std::span<const std::byte* const> sources,
                       std::size_t count, ElementType type, ReduceOp op);

// The type in which a reduction of `type` is accumulated: fp32 for bf16 and fp16, else the type.
ElementType AccumulatorType(ElementType type);

// The same reduction in portions of consecutive ranks, each begun where the one before has ended,
// so that the result has the same bits as of all ranks at once.
struct ReducePortion {
  const std::byte* before =
      nullptr;    // what the portion before has put out; null: this is the first
  int ranks = 0;  // of all portions together, where this is the last one; 0: others follow
};
// Puts out elements of the accumulator's type while others follow, else of `type`. `output` may be
// `before` or one of the sources where its elements are as large.
void ReduceNextPortion(std::byte* output, std::span<const std::byte* const> sources,
                       std::size_t count, ElementType type, ReduceOp op,
                       const ReducePortion& portion);

}  // namespace ds::comm
