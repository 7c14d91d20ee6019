#include "runtime/optim/optimizer.h"

#include "runtime/optim/kernels/flat_update.h"

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

}  // namespace ds::optim
