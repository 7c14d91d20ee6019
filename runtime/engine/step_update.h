#pragma once

// StepUpdate performs the update of a step: it reduces the gradients, agrees with the other ranks
// on norm, loss and finite check, clips, updates the model, and advances the schedule and the loss
// scale. It only holds references to the components of an engine, which must outlive it.
//
// Collective, with the threads and errors of Engine.

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/engine/step_result.h"
#include "runtime/plan/schedule/lr_schedule.h"

namespace ds::engine {

struct EngineComponents;
struct RankTopology;
struct StepContext;
struct StepTotals;
struct TrainedModel;

class StepUpdate {
 public:
  explicit StepUpdate(EngineComponents& engine);

  // Reduces the gradients unless they are reduced already. Afterwards they are the mean over ranks,
  // or the optimizer's substitute for it. Fails before the boundary.
  Status ReduceGradientsOnce();
  // Computes the mean of the ranks' loss weights, unless it is known.
  void AgreeOnWeight();
  // Makes the next backward pass, the last of the step, update the model.
  Status BeginUpdate();

  // Computes norm and finite check across ranks, clips, updates, advances the schedule and reports.
  // Requires reduced gradients (ReduceGradientsOnce).
  StatusOr<StepResult> Finish();

  // Launches the part of Finish that runs on the device without the host: norm, decision and
  // update. Waits for none of them. Returns the sum over all ranks of the squared reduced
  // gradients, a double scalar on the device. Requires reduced gradients, AgreeOnWeight and
  // ShardedOptimizer::takes_decision.
  StatusOr<at::Tensor> Launch(std::vector<optim::ScheduledValues> scheduled);

 private:
  Status UpdateFromHost(const StepTotals& totals, std::vector<optim::ScheduledValues> scheduled,
                        StepResult* result);
  Status UpdateOnDevice(std::vector<optim::ScheduledValues> scheduled, StepTotals* totals,
                        StepResult* result);
  Status CheckUnusedParameters() const;
  // Handles a gradient that is not finite as the config and policy say: turns `result` into a step
  // without an update, or returns the error that ends the run.
  Status HandleNonFinite(StepResult* result);
  Status CountUpdate();

  const config::DsConfig& config_;
  const RankTopology& topology_;
  TrainedModel& model_;
  StepContext& step_;
};

}  // namespace ds::engine
