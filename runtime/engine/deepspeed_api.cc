#include "runtime/engine/deepspeed_api.h"

#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/config/sections/batch_section.h"
#include "runtime/engine/engine_components.h"

namespace ds::engine {

using zero::StateKind;

DeepSpeedApi::DeepSpeedApi(Engine& engine) : engine_(*engine.components_) {}

std::int64_t DeepSpeedApi::skipped_steps() const {
  return engine_.step.state.counts.finished - engine_.step.state.counts.applied;
}
std::int64_t DeepSpeedApi::micro_steps() const {
  return engine_.step.state.counts.micro_batches + engine_.step.state.current.micro_batches;
}
std::int64_t DeepSpeedApi::global_samples() const { return engine_.step.state.counts.samples; }

const config::BatchConfig& DeepSpeedApi::batch_sizes() const { return engine_.step.batch; }

Status DeepSpeedApi::ChangeBatch(const StatusOr<config::BatchConfig>& batch) {
  DS_RETURN_IF_ERROR(batch.status());
  DS_RETURN_IF_ERROR(engine_.step.state.CheckBetweenSteps("batch sizes change"));
  engine_.step.batch = *batch;
  return OkStatus();
}

Status DeepSpeedApi::set_train_batch_size(std::int64_t train) {
  return ChangeBatch(config::WithTrainBatchSize(
      engine_.step.batch, train, engine_.topology.mesh.CountOver(topology::kDataAxes)));
}

Status DeepSpeedApi::set_train_micro_batch_size(std::int64_t micro) {
  return ChangeBatch(config::WithMicroBatchSize(
      engine_.step.batch, micro, engine_.topology.mesh.CountOver(topology::kDataAxes)));
}

bool DeepSpeedApi::is_gradient_accumulation_boundary() const {
  return engine_.step.IsInLastMicroBatch();
}

Status DeepSpeedApi::set_gradient_accumulation_boundary(bool is_boundary) {
  if (!engine_.step.managed_accumulation) {
    return FailedPreconditionError(
        "with managed_gradient_accumulation false the boundary is where step() is called");
  }
  engine_.step.state.boundary = is_boundary;
  return OkStatus();
}

Status DeepSpeedApi::zero_grad() {
  StepInProgress& current = engine_.step.state.current;
  const bool is_alone = engine_.step.managed_accumulation && !engine_.step.state.boundary &&
                        current.CountStarted() == 1 && engine_.step.IsUpdateDue();
  if (!is_alone || current.backward_is_unfinished) return OkStatus();
  if (engine_.model.optimizer->has_updated()) {
    return FailedPreconditionError(
        "zero_grad(): super_offload has updated a part of the model in this step's backward pass: "
        "end it with step()");
  }
  current = {};
  engine_.model.optimizer->ClearGradients();
  return OkStatus();
}

DeepSpeedApi::LocalGradients::LocalGradients(bool* inside) : inside_(inside) { *inside = true; }

StatusOr<DeepSpeedApi::LocalGradients> DeepSpeedApi::no_sync() {
  const int stage = engine_.config.zero_optimization.stage;
  if (stage >= 2) {
    return FailedPreconditionError("no_sync() cannot be combined with ZeRO stage " +
                                   std::to_string(stage) +
                                   ": its gradients are sharded, and every backward reduces them "
                                   "(coalesce_grad_reduction() keeps them until it ends)");
  }
  return coalesce_grad_reduction();
}

StatusOr<DeepSpeedApi::LocalGradients> DeepSpeedApi::coalesce_grad_reduction() {
  if (engine_.step.state.local_gradients) {
    return FailedPreconditionError(
        "no_sync() or coalesce_grad_reduction() inside the scope of another one");
  }
  return LocalGradients(&engine_.step.state.local_gradients);
}

bool DeepSpeedApi::was_step_applied() const { return engine_.step.state.latest_was_applied; }
std::optional<double> DeepSpeedApi::global_grad_norm() const {
  return engine_.step.state.latest_norm;
}
double DeepSpeedApi::lr() const {
  return engine_.step.rates.FindNext(engine_.step.state.counts.scheduled_updates())[0].lr;
}
double DeepSpeedApi::momentum() const {
  return engine_.step.rates.FindMomentum(engine_.step.state.counts.scheduled_updates());
}
Status DeepSpeedApi::CheckRatesCanChange() const {
  if (engine_.model.optimizer->has_updated()) {
    return FailedPreconditionError(
        "super_offload has updated a part of the model in this step's backward pass: set the rate "
        "before it, or after step()");
  }
  return OkStatus();
}
Status DeepSpeedApi::set_lr(double lr) {
  DS_RETURN_IF_ERROR(CheckRatesCanChange());
  return engine_.step.rates.Set(lr);
}
Status DeepSpeedApi::set_group_rates(const std::vector<double>& rates) {
  DS_RETURN_IF_ERROR(CheckRatesCanChange());
  return engine_.step.rates.SetEach(rates);
}
std::vector<double> DeepSpeedApi::group_rates(std::size_t count) const {
  return engine_.step.rates.FindEach(engine_.step.state.counts.scheduled_updates(), count);
}
void DeepSpeedApi::place_batch(std::int64_t first_sample, double lr_factor) {
  engine_.step.state.current.next_position = first_sample;
  engine_.step.rates.Scale(lr_factor);
}
double DeepSpeedApi::loss_scale() const { return engine_.step.loss_scaler.scale(); }

std::vector<DeepSpeedApi::RecomputeTimes> DeepSpeedApi::take_recompute_times() {
  std::vector<RecomputeTimes> all;
  for (auto& [block, times] : engine_.runner.recompute_times()) {
    if (times.first.count() == 0 && times.again.count() == 0) continue;  // no recomputed part
    const std::string& name =
        engine_.model.sharded->units()[static_cast<std::size_t>(block)]->name();
    all.push_back({.block = name, .first = times.first, .again = times.again});
    times = {};
  }
  return all;
}

const std::optional<PhaseTimes>& DeepSpeedApi::wall_clock_timers() const {
  return engine_.reporter.phases.latest();
}

Status DeepSpeedApi::offload_states(const std::vector<StateKind>& include) {
  DS_RETURN_IF_ERROR(engine_.model.CheckNotGathered());
  DS_RETURN_IF_ERROR(engine_.step.state.CheckBetweenSteps("states are offloaded"));
  const std::vector<StateKind> all = {StateKind::kOptimStates, StateKind::kHpParams,
                                      StateKind::kLpParams, StateKind::kLpGrads,
                                      StateKind::kContiguousGradBuffer};
  engine_.model.states_offloaded = true;
  for (const StateKind kind : include.empty() ? all : include)
    engine_.model.optimizer->MoveToHost(kind);
  return OkStatus();
}

Status DeepSpeedApi::reload_states() { return engine_.model.ReloadStates(); }

Status DeepSpeedApi::empty_partition_cache() {
  DS_RETURN_IF_ERROR(engine_.model.CheckNotGathered());
  DS_RETURN_IF_ERROR(engine_.step.state.CheckBetweenSteps("buffers are freed"));
  engine_.model.sharded->FreeBuffers();
  return OkStatus();
}

}  // namespace ds::engine
