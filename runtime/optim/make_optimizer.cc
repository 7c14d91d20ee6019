#include "runtime/optim/make_optimizer.h"

#include "runtime/base/check.h"
#include "runtime/optim/adagrad.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/lamb.h"
#include "runtime/optim/lion.h"
#include "runtime/optim/muon.h"
#include "runtime/optim/one_bit/one_bit_adam.h"
#include "runtime/optim/one_bit/one_bit_lamb.h"
#include "runtime/optim/one_bit/zero_one_adam.h"
#include "runtime/optim/sgd.h"

namespace ds::optim {

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
    case config::OptimizerType::kOneBitAdam:
      return std::make_unique<OneBitAdam>(config);
    case config::OptimizerType::kOneBitLamb:
      return std::make_unique<OneBitLamb>(config);
    case config::OptimizerType::kZeroOneAdam:
      return std::make_unique<ZeroOneAdam>(config);
  }
  DS_CHECK_MSG(false, "an optimizer that the registry calls supported");
  return nullptr;
}

}  // namespace ds::optim
