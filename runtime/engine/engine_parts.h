#pragma once

// EngineParts: the state of an Engine, for the files that implement it.

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/module_buffers.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/optim/schedule/lr_schedule.h"
#include "runtime/precision/loss_scaler.h"
#include "runtime/zero/sharded_model.h"
#include "runtime/zero/sharded_optimizer.h"

namespace ds::engine {

// The loss of one micro-batch.
struct MicroLoss {
  at::Tensor value;
  bool scale_wrt_gas = true;  // as given to backward
  double weight = 1.0;        // among the step's; 1 where the caller has divided the loss
};

// A loss that forward has returned, for as long as anybody has it.
struct ReturnedLoss {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> loss;
  double weight = 1.0;  // Bundle::loss_weight
};

// The micro-batches of the step in progress that this rank has seen.
struct StepInProgress {
  std::int64_t micro_batches = 0;
  std::vector<ReturnedLoss> returned;
  std::vector<MicroLoss> losses;
  std::optional<double> mean_weight;  // of all ranks' losses, once it is known
  std::int64_t tokens = 0;
  std::int64_t samples = 0;
  bool reduced = false;             // the gradients
  bool backward_is_latest = false;  // of forward, backward and step: that micro-batch is still on

  // That of `loss`, or, where it is computed from what forward has returned, the latest's.
  double FindWeight(const at::Tensor& loss) const;
  double AddUpWeights() const;  // of the losses, over their number
};

struct EngineParts {
  std::shared_ptr<BlockList> model;
  config::DsConfig config;

  // Only when not given by the caller; declared first, for what follows refers to them.
  std::unique_ptr<comm::Communicator> own_world;
  std::unique_ptr<device::MemoryLedger> own_ledger;

  ModuleBuffers buffers;
  std::unique_ptr<zero::ShardedModel> sharded;
  std::unique_ptr<zero::ShardedOptimizer> optimizer;

  std::vector<double> group_rates;  // own ones of the groups that config.group_schedules are of

  precision::LossScaler loss_scaler{{}};
  NonFinitePolicy non_finite = NonFinitePolicy::kAsConfigured;

  std::int64_t finished_steps = 0;
  // Finished ones less the skipped: what the optimizer and the schedule count.
  std::int64_t applied_steps = 0;
  std::int64_t micro_steps = 0;     // of the finished steps
  std::int64_t global_samples = 0;  // of the finished steps and all ranks
  StepInProgress step;
  std::optional<bool> boundary;  // as the user has set it
  std::optional<double> set_lr;  // as the user has set it
  bool local_gradients = false;  // inside a scope of Engine::LocalGradients
  bool latest_was_applied = false;
  std::optional<double> latest_norm;
  std::unique_ptr<TensorAccess> tensors;
  bool states_away = false;  // on the host

  // Tells whether the user or the number of micro-batches says that a step is due.
  bool at_boundary() const {
    if (boundary) return *boundary;
    return !config.managed_gradient_accumulation ||
           step.micro_batches >= config.batch.gradient_accumulation_steps;
  }
  bool in_last_micro_batch() const {
    if (boundary || !config.managed_gradient_accumulation) return at_boundary();
    const std::int64_t current = step.micro_batches + (step.backward_is_latest ? 0 : 1);
    return current >= config.batch.gradient_accumulation_steps;
  }
  // The values that the schedule, or the user, gives for the next update: one for each parameter
  // group, where scheduler.params has lists, else one for all. Never empty.
  std::vector<optim::ScheduledValues> scheduled() const {
    std::vector<optim::ScheduledValues> values;
    for (std::size_t i = 0; i < config.group_schedules.size(); ++i) {
      values.push_back(
          optim::ValuesAfter(config.group_schedules[i], group_rates[i], applied_steps));
    }
    if (values.empty()) {
      values.push_back(optim::ValuesAfter(config.scheduler, config.optimizer.lr, applied_steps));
    }
    if (set_lr) {
      for (optim::ScheduledValues& group : values) group.lr = *set_lr;
    }
    return values;
  }
  bool has_schedule() const {
    return !std::holds_alternative<config::ConstantRate>(config.scheduler);
  }
  // Fails inside a step, when `what` cannot be.
  Status CheckBetweenSteps(const char* what) const;
  // Brings back what offload_states has taken away; before whatever needs the model's state. Not
  // collective.
  void ReloadStates();
  Status ChangeBatch(const StatusOr<config::BatchConfig>& batch);
  // Reduces the gradients unless that is done: the mean over ranks (or what the optimizer takes in
  // its place) is there after this. Fails before the boundary. Collective.
  Status ReduceGradientsOnce();

  // The factor of a micro-batch's loss in its backward.
  double backward_scale(bool scale_wrt_gas) const {
    const std::int64_t gas = scale_wrt_gas ? config.batch.gradient_accumulation_steps : 1;
    return loss_scaler.scale() / static_cast<double>(gas);
  }
  // Takes the mean of the ranks' weights, unless it is known. Collective.
  void AgreeOnWeight();
  // Tells what the reduced gradients are to be divided by. Requires AgreeOnWeight.
  double gradient_unit() const { return loss_scaler.scale() * step.mean_weight.value(); }
  // Updates the model by a step whose gradients, still times the loss scale, have this global norm.
  // Refuses gradients that the config does not take. Collective.
  Status ApplyUpdate(double scaled_norm, std::vector<optim::ScheduledValues> scheduled);
  // Makes `result`, whose gradient is not finite, the step without an update that config and policy
  // want, or says why the run ends.
  Status HandleNonFinite(StepResult* result);
};

}  // namespace ds::engine
