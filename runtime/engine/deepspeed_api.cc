#include "runtime/engine/deepspeed_api.h"

#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/config/sections/batch_section.h"
#include "runtime/engine/engine_parts.h"

namespace ds::engine {

using zero::StateKind;

DeepSpeedApi::DeepSpeedApi(Engine& engine) : parts_(*engine.parts_) {}

std::int64_t DeepSpeedApi::skipped_steps() const {
  return parts_.step.counts.finished - parts_.step.counts.applied;
}
std::int64_t DeepSpeedApi::micro_steps() const {
  return parts_.step.counts.micro_batches + parts_.step.current.micro_batches;
}
std::int64_t DeepSpeedApi::global_samples() const { return parts_.step.counts.samples; }

const config::BatchConfig& DeepSpeedApi::batch_sizes() const { return parts_.config.batch; }

Status DeepSpeedApi::ChangeBatch(const StatusOr<config::BatchConfig>& batch) {
  DS_RETURN_IF_ERROR(batch.status());
  DS_RETURN_IF_ERROR(parts_.step.CheckBetweenSteps("batch sizes change"));
  parts_.config.batch = *batch;
  return OkStatus();
}

Status DeepSpeedApi::set_train_batch_size(std::int64_t train) {
  return ChangeBatch(config::WithTrainBatchSize(parts_.config.batch, train,
                                                parts_.mesh.CountOver(topology::kDataAxes)));
}

Status DeepSpeedApi::set_train_micro_batch_size(std::int64_t micro) {
  return ChangeBatch(config::WithMicroBatchSize(parts_.config.batch, micro,
                                                parts_.mesh.CountOver(topology::kDataAxes)));
}

bool DeepSpeedApi::is_gradient_accumulation_boundary() const {
  return parts_.step.IsInLastMicroBatch(parts_.accumulation());
}

Status DeepSpeedApi::set_gradient_accumulation_boundary(bool is_boundary) {
  if (!parts_.config.managed_gradient_accumulation) {
    return FailedPreconditionError(
        "with managed_gradient_accumulation false the boundary is where step() is called");
  }
  parts_.step.boundary = is_boundary;
  return OkStatus();
}

DeepSpeedApi::LocalGradients::LocalGradients(bool* inside) : inside_(inside) { *inside = true; }

StatusOr<DeepSpeedApi::LocalGradients> DeepSpeedApi::no_sync() {
  const int stage = parts_.config.zero_optimization.stage;
  if (stage >= 2) {
    return FailedPreconditionError("no_sync() does not go with ZeRO stage " +
                                   std::to_string(stage) +
                                   ", whose gradients are sharded: every backward reduces them "
                                   "(coalesce_grad_reduction() keeps them until it ends)");
  }
  return coalesce_grad_reduction();
}

StatusOr<DeepSpeedApi::LocalGradients> DeepSpeedApi::coalesce_grad_reduction() {
  if (parts_.step.local_gradients) {
    return FailedPreconditionError(
        "no_sync() or coalesce_grad_reduction() inside the scope of another one");
  }
  return LocalGradients(&parts_.step.local_gradients);
}

bool DeepSpeedApi::was_step_applied() const { return parts_.step.latest_was_applied; }
std::optional<double> DeepSpeedApi::global_grad_norm() const { return parts_.step.latest_norm; }
double DeepSpeedApi::lr() const { return parts_.rates.FindNext(parts_.step.counts.applied)[0].lr; }
double DeepSpeedApi::momentum() const {
  return parts_.rates.FindMomentum(parts_.step.counts.applied);
}
Status DeepSpeedApi::set_lr(double lr) {
  if (parts_.optimizer->has_updated()) {
    return FailedPreconditionError(
        "super_offload has updated a part of the model in this step's backward pass: set the rate "
        "before it, or after step()");
  }
  return parts_.rates.Set(lr);
}
void DeepSpeedApi::place_batch(std::int64_t first_sample, double lr_factor) {
  parts_.step.current.next_place = first_sample;
  parts_.rates.Scale(lr_factor);
}
double DeepSpeedApi::loss_scale() const { return parts_.loss_scaler.scale(); }

std::vector<DeepSpeedApi::RecomputeTimes> DeepSpeedApi::take_recompute_times() {
  std::vector<RecomputeTimes> all;
  for (auto& [block, times] : parts_.blocks.recompute_times) {
    if (times.first.count() == 0 && times.again.count() == 0) continue;  // no recomputed part
    const std::string& name = parts_.sharded->units()[static_cast<std::size_t>(block)]->name();
    all.push_back({.block = name, .first = times.first, .again = times.again});
    times = {};
  }
  return all;
}

const std::optional<PhaseTimes>& DeepSpeedApi::wall_clock_timers() const {
  return parts_.phases.latest();
}

Status DeepSpeedApi::offload_states(const std::vector<StateKind>& include) {
  DS_RETURN_IF_ERROR(parts_.CheckNotGathered());
  DS_RETURN_IF_ERROR(parts_.step.CheckBetweenSteps("states are offloaded"));
  const std::vector<StateKind> all = {StateKind::kOptimStates, StateKind::kHpParams,
                                      StateKind::kLpParams, StateKind::kLpGrads,
                                      StateKind::kContiguousGradBuffer};
  parts_.states_away = true;
  for (const StateKind kind : include.empty() ? all : include) parts_.optimizer->MoveToHost(kind);
  return OkStatus();
}

Status DeepSpeedApi::reload_states() { return parts_.ReloadStates(); }

Status DeepSpeedApi::empty_partition_cache() {
  DS_RETURN_IF_ERROR(parts_.CheckNotGathered());
  DS_RETURN_IF_ERROR(parts_.step.CheckBetweenSteps("buffers are freed"));
  parts_.sharded->FreeBuffers();
  return OkStatus();
}

}  // namespace ds::engine
