#pragma once

// StepState tracks the progress of a run, this rank's micro-batches of the step in progress, and
// when the step's update is due. It only computes: it calls no collective and no other part of the
// engine.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/status.h"

namespace ds::engine {

struct StepResult;

// MicroBatchEnd defines when a micro-batch ends.
enum class MicroBatchEnd {
  kBackward,  // each backward pass
  kStep,      // each call of step(), as in DeepSpeed, after any number of backward passes
};

// Accumulation defines when a step has all its micro-batches.
struct Accumulation {
  std::int64_t micro_batches = 1;  // per step
  bool managed = true;             // false: the caller decides by calling step()
};

// The loss of one micro-batch.
struct MicroLoss {
  at::Tensor value;
  bool scale_wrt_gas = true;  // as given to backward
  double weight = 1.0;        // relative to the step's others; 1 if the caller has divided the loss
};

// A loss that forward returned; a weak reference.
struct ReturnedLoss {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> loss;
  double weight = 1.0;  // Bundle::loss_count over the step's loss_unit; 1 without loss_count
};

// This rank's micro-batches of the step in progress.
struct StepInProgress {
  std::int64_t micro_batches = 0;  // that have ended
  bool is_open = false;            // one has been through backward, and step() is to end it
  std::vector<ReturnedLoss> returned;
  // Counts the sample indices that each rank's forwards have used as positions in the blocks'
  // random streams. A micro-batch uses one per sample, or the configured micro-batch size if that
  // is more.
  std::int64_t random_positions = 0;
  // The sample index of the next micro-batch, if set by DeepSpeedApi::place_batch.
  std::optional<std::int64_t> next_position = {};
  std::vector<MicroLoss> losses;
  std::optional<double> mean_weight;  // over all ranks' losses; nullopt until computed
  std::int64_t tokens = 0;
  std::int64_t most_labels = 0;  // maximum over micro-batches
  std::int64_t samples = 0;
  at::Tensor expert_routes;  // sum of models/decoder/expert_load.h; undefined without experts
  bool reduced = false;      // the gradients
  bool backward_is_latest = false;      // its micro-batch is still the current one
  bool backward_is_unfinished = false;  // one runs, or has thrown

  // The micro-batches that have been through backward.
  std::int64_t CountStarted() const { return micro_batches + (is_open ? 1 : 0); }
  // Ends the micro-batch in progress, if there is one: another one begins.
  void EndMicroBatch() {
    micro_batches = CountStarted();
    is_open = backward_is_latest = false;
  }

  void AddExpertRoutes(const at::Tensor& routes);

  // Returns the weight of `loss`. If `loss` was computed from a loss that forward returned, returns
  // the weight of the latest one.
  double FindWeight(const at::Tensor& loss) const;
  // AddUpWeights and AddUpLosses return 0 on a stage without losses.
  double AddUpWeights() const;  // the mean of the weights
  // Returns the index, from 0, of the first micro-batch with a loss that is not finite.
  std::optional<std::int64_t> FindNonFiniteLoss() const;
  // Returns the micro-batches' losses as double scalars, on their devices.
  std::vector<at::Tensor> ListLosses() const;
  // Returns the weighted sum of the losses' values: this rank's part of the gradient is the
  // gradient of this sum.
  double AddUpLosses(std::span<const double> values) const;
};

// StepCounts counts the finished steps of the whole run, checkpoints included.
struct StepCounts {
  std::int64_t finished = 0;
  // Finished steps minus skipped ones.
  std::int64_t applied = 0;
  // Values of `applied` when the optimizer's state and the schedule began: not 0 after a load that
  // has left one of them out.
  std::int64_t optimizer_began = 0;
  std::int64_t schedule_began = 0;
  std::int64_t micro_batches = 0;
  std::int64_t samples = 0;  // of all ranks
  // The most labels in a micro-batch of the latest step on any rank; 0 before the first.
  std::int64_t most_labels = 0;

  std::int64_t optimizer_updates() const { return applied - optimizer_began; }
  std::int64_t scheduled_updates() const { return applied - schedule_began; }

  nlohmann::json State() const;
  Status LoadState(const nlohmann::json& state);
};

struct StepState {
  StepCounts counts;
  StepInProgress current;
  std::optional<bool> boundary;  // as set by the user
  bool local_gradients = false;  // inside a scope of DeepSpeedApi::LocalGradients
  bool latest_was_applied = false;
  std::optional<double> latest_norm;

  // Returns whether a step is due, by the user's setting or by the number of micro-batches.
  bool IsUpdateDue(const Accumulation& accumulation) const;
  // Returns whether the micro-batch in progress (between two micro-batches: the next one) is the
  // last.
  bool IsInLastMicroBatch(const Accumulation& accumulation) const;
  // Fails inside a step; `what` names the operation that is not possible there.
  Status CheckBetweenSteps(const char* what) const;

  // Ends the step in progress with `result`. The caller counts its update, if there was one.
  void Finish(const StepResult& result);
  // Drops the step in progress and the latest results. Called after a checkpoint is loaded.
  void Forget();
};

}  // namespace ds::engine
