#pragma once

// MakeOptimizer: the optimizer that a ds_config asks for.

#include <memory>

#include "runtime/config/optimizer.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

std::unique_ptr<Optimizer> MakeOptimizer(const config::OptimizerConfig& config);

}  // namespace ds::optim
