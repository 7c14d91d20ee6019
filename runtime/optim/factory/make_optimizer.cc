#include "runtime/optim/factory/make_optimizer.h"

#include <variant>

#include "runtime/optim/elementwise.h"

namespace ds::optim {

template <typename Config>
static std::unique_ptr<Optimizer> MakeFor(const Config& config, double weight_decay) {
  if constexpr (requires(PartRates rates) { MakeOp(config, rates); }) {
    return std::make_unique<Elementwise<Config>>(config, weight_decay);
  } else {
    // Optimizers that are more than an op have their own source, which defines this function for
    // their config. An alternative without an optimizer does not link.
    std::unique_ptr<Optimizer> MakeOptimizer(const Config& config, double weight_decay);
    return MakeOptimizer(config, weight_decay);
  }
}

std::unique_ptr<Optimizer> MakeOptimizer(const config::OptimizerConfig& config) {
  return std::visit([&](const auto& each) { return MakeFor(each, config.weight_decay); },
                    config.algorithm);
}

}  // namespace ds::optim
