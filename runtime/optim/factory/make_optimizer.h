#pragma once

// MakeOptimizer creates the optimizer of a ds_config.

#include <memory>

#include "runtime/config/optimizer.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

std::unique_ptr<Optimizer> MakeOptimizer(const config::OptimizerConfig& config);

}  // namespace ds::optim
