#pragma once

// ResidencyBudgets from a ds_config, whose keys count elements of parameters.
//
// DeepSpeed's defaults stand for the runtime's own: nothing is gathered ahead or kept, however much
// may be live, and nothing stays because it is small. Its defaults would keep a small model
// gathered from its first forward pass on.

#include <cstdint>

#include "runtime/config/ds_config.h"
#include "runtime/zero/residency_plan.h"

namespace ds::zero {

ResidencyBudgets MakeResidencyBudgets(const config::ZeroConfig& config, std::int64_t element_size);

}  // namespace ds::zero
