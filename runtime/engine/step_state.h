#pragma once

// StepState: how far a run is, what this rank has seen of the step in progress, and when that
// step's update is due. It computes only: no collective, no other part of the engine.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/status.h"

namespace ds::engine {

struct StepResult;

// Accumulation says when a step has all its micro-batches.
struct Accumulation {
  std::int64_t micro_batches = 1;  // of a step
  bool managed = true;             // false: the caller, by calling step()
};

// The loss of one micro-batch.
struct MicroLoss {
  at::Tensor value;
  bool scale_wrt_gas = true;  // as given to backward
  double weight = 1.0;        // among the step's; 1 where the caller has divided the loss
};

// A loss that forward has returned, for as long as anybody has it.
struct ReturnedLoss {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> loss;
  double weight = 1.0;  // Bundle::loss_count in units of the step, 1 without it
};

// The micro-batches of the step in progress that this rank has seen.
struct StepInProgress {
  std::int64_t micro_batches = 0;  // that have been through backward
  std::vector<ReturnedLoss> returned;
  // Counts the places that each rank's forwards have taken among the numbers that blocks draw: a
  // micro-batch takes one for each of its samples, or of the configured ones if they are more.
  std::int64_t random_places = 0;
  // The place of the next micro-batch, where somebody has said it (DeepSpeedApi::place_batch).
  std::optional<std::int64_t> next_place = {};
  std::vector<MicroLoss> losses;
  std::optional<double> mean_weight;  // of all ranks' losses, once it is known
  std::int64_t tokens = 0;
  std::int64_t most_labels = 0;  // of one micro-batch
  std::int64_t samples = 0;
  at::Tensor expert_routes;         // models/decoder/expert_load.h, added up; undefined: no experts
  bool reduced = false;             // the gradients
  bool backward_is_latest = false;  // of forward, backward and step: that micro-batch is still on

  void AddExpertRoutes(const at::Tensor& routes);

  // Finds the weight of `loss`, or, where that is computed from what forward has returned, of the
  // latest.
  double FindWeight(const at::Tensor& loss) const;
  // Both are 0 on a stage that has no loss.
  double AddUpWeights() const;  // of the losses, over their number
  // The number of the first micro-batch whose loss is not finite, from 0.
  std::optional<std::int64_t> FindNonFiniteLoss() const;
  // The losses of the micro-batches where they are, double scalars.
  std::vector<at::Tensor> ListLosses() const;
  // Adds them up, once they are known, with their weights: what this rank's part of the gradient is
  // of.
  double AddUpLosses(std::span<const double> values) const;
};

// StepCounts counts the finished steps of the whole run, checkpoints included.
struct StepCounts {
  std::int64_t finished = 0;
  // Finished ones less the skipped: what the optimizer and the schedule count.
  std::int64_t applied = 0;
  std::int64_t micro_batches = 0;
  std::int64_t samples = 0;  // of all ranks
  // The most labels that a micro-batch of the latest step had on any rank; 0 before the first.
  std::int64_t most_labels = 0;

  nlohmann::json State() const;
  Status LoadState(const nlohmann::json& state);
};

struct StepState {
  StepCounts counts;
  StepInProgress current;
  std::optional<bool> boundary;  // as the user has set it
  bool local_gradients = false;  // inside a scope of DeepSpeedApi::LocalGradients
  bool latest_was_applied = false;
  std::optional<double> latest_norm;

  // Tells whether the user or the number of micro-batches says that a step is due.
  bool IsUpdateDue(const Accumulation& accumulation) const;
  // ... whether the micro-batch in progress, or between two of them the next one, is its last.
  bool IsInLastMicroBatch(const Accumulation& accumulation) const;
  // Fails inside a step, when `what` cannot be.
  Status CheckBetweenSteps(const char* what) const;

  // Ends the step in progress as the one that `result` tells of; counts its update, if there was
  // one, elsewhere.
  void Finish(const StepResult& result);
  // Forgets the step in progress and the latest one: a checkpoint was loaded.
  void Forget();
};

}  // namespace ds::engine
