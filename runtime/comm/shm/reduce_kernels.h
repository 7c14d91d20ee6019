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

}  // namespace ds::comm
