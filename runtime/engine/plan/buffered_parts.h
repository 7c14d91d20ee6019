#pragma once

// BufferParts: what blocks hold of a micro-batch where the parts that recomputed ones keep lie in
// one buffer (ActivationCheckpointingConfig::buffered_parts): all of it is there from the first of
// them in the forward pass until it is computed again, as the last one. Pure.

#include <cstdint>
#include <vector>

#include "runtime/zero/plan/step_memory.h"

namespace ds::engine {

struct PartBuffer {
  std::int64_t count = 0;
  std::int64_t part_bytes = 0;
};

// `recomputed`: by block, in the order of `blocks`.
void BufferParts(const PartBuffer& buffer, const std::vector<bool>& recomputed,
                 std::vector<zero::BlockActivations>* blocks);

}  // namespace ds::engine
