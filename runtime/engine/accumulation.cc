#include <string>

#include "runtime/config/sections/batch_section.h"
#include "runtime/engine/engine_parts.h"

namespace ds::engine {

bool Engine::is_gradient_accumulation_boundary() const {
  return parts_->step.IsInLastMicroBatch(parts_->accumulation());
}

Status Engine::set_gradient_accumulation_boundary(bool is_boundary) {
  if (!parts_->config.managed_gradient_accumulation) {
    return FailedPreconditionError(
        "with managed_gradient_accumulation false the boundary is where step() is called");
  }
  parts_->step.boundary = is_boundary;
  return OkStatus();
}

Status EngineParts::ChangeBatch(const StatusOr<config::BatchConfig>& batch) {
  DS_RETURN_IF_ERROR(batch.status());
  DS_RETURN_IF_ERROR(step.CheckBetweenSteps("batch sizes change"));
  config.batch = *batch;
  return OkStatus();
}

const config::BatchConfig& Engine::batch_sizes() const { return parts_->config.batch; }

Status Engine::set_train_batch_size(std::int64_t train) {
  return parts_->ChangeBatch(config::WithTrainBatchSize(
      parts_->config.batch, train, parts_->mesh.CountOver(topology::kDataAxes)));
}

Status Engine::set_train_micro_batch_size(std::int64_t micro) {
  return parts_->ChangeBatch(config::WithMicroBatchSize(
      parts_->config.batch, micro, parts_->mesh.CountOver(topology::kDataAxes)));
}

Engine::LocalGradients::LocalGradients(bool* inside) : inside_(inside) { *inside = true; }

StatusOr<Engine::LocalGradients> Engine::no_sync() {
  const int stage = parts_->config.zero_optimization.stage;
  if (stage >= 2) {
    return FailedPreconditionError("no_sync() does not go with ZeRO stage " +
                                   std::to_string(stage) +
                                   ", whose gradients are sharded: every backward reduces them "
                                   "(coalesce_grad_reduction() keeps them until it ends)");
  }
  return coalesce_grad_reduction();
}

StatusOr<Engine::LocalGradients> Engine::coalesce_grad_reduction() {
  if (parts_->step.local_gradients) {
    return FailedPreconditionError(
        "no_sync() or coalesce_grad_reduction() inside the scope of another one");
  }
  return LocalGradients(&parts_->step.local_gradients);
}

}  // namespace ds::engine
