#include "runtime/optim/optimizer.h"

#include "runtime/base/check.h"
#include "runtime/optim/adagrad.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/lamb.h"
#include "runtime/optim/lion.h"
#include "runtime/optim/muon.h"
#include "runtime/optim/sgd.h"

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
    case config::OptimizerType::kSgd:
      return std::make_unique<Sgd>(config);
    case config::OptimizerType::kAdagrad:
      return std::make_unique<Adagrad>(config);
    case config::OptimizerType::kLion:
      return std::make_unique<Lion>(config);
    case config::OptimizerType::kLamb:
      return std::make_unique<Lamb>(config);
    case config::OptimizerType::kMuon:
      return std::make_unique<Muon>(config);
  }
  DS_CHECK_MSG(false, "an optimizer that the registry calls supported");
  return nullptr;
}

}  // namespace ds::optim
