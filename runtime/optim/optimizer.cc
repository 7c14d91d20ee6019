#include "runtime/optim/optimizer.h"

#include "runtime/base/check.h"
#include "runtime/optim/adagrad.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/kernels/flat_update.h"
#include "runtime/optim/lamb.h"
#include "runtime/optim/lion.h"
#include "runtime/optim/muon.h"
#include "runtime/optim/one_bit/one_bit_adam.h"
#include "runtime/optim/one_bit/one_bit_lamb.h"
#include "runtime/optim/one_bit/zero_one_adam.h"
#include "runtime/optim/sgd.h"

namespace ds::optim {

bool Optimizer::WantsOwnGradients(std::int64_t step) const {
  static_cast<void>(step);
  return false;
}

nlohmann::json Optimizer::State() const { return nullptr; }

Status Optimizer::LoadState(const nlohmann::json& state, std::int64_t parameter_count) {
  static_cast<void>(state);
  static_cast<void>(parameter_count);
  return OkStatus();
}

void Optimizer::Begin(const Update& update, const RankParts& all) {
  static_cast<void>(update);
  static_cast<void>(all);
}

FlatUpdate Optimizer::Launch(const Part& part) {
  if (everywhere_ != nullptr || part.parameter.is_cpu()) return everywhere_;
  if (cuda_ == nullptr) cuda_ = CudaFlatUpdate();
  return cuda_;
}

void Optimizer::UseLaunchEverywhere(FlatUpdate launch) { everywhere_ = launch; }

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
