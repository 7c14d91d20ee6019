#include "runtime/optim/optimizer.h"

#include "runtime/base/check.h"
#include "runtime/optim/adam.h"

namespace ds::optim {

void Optimizer::Begin(const Update& update, const RankParts& all) {
  static_cast<void>(update);
  static_cast<void>(all);
}

std::unique_ptr<Optimizer> MakeOptimizer(const config::OptimizerConfig& config) {
  switch (config.type) {
    case config::OptimizerType::kAdam:
    case config::OptimizerType::kAdamW:
      return std::make_unique<Adam>(config);
  }
  DS_CHECK_MSG(false, "an optimizer that the registry calls supported");
  return nullptr;
}

}  // namespace ds::optim
