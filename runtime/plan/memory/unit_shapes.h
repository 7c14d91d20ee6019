#pragma once

// ListUnitShapes: groups the parameters of blocks into flat buffers, as zero::BucketParameters
// does: by training, expert, quantization for transfer and Muon. Pure.

#include <vector>

#include "runtime/config/ds_config.h"
#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::engine {

// `step` comes from zero::DescribeStep. Returns one unit for each block.
std::vector<zero::UnitShape> ListUnitShapes(const config::DsConfig& config,
                                            const zero::StepMemoryInput& step,
                                            const std::vector<models::BlockSizes>& blocks);

}  // namespace ds::engine
