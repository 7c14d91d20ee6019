#pragma once

// StepContext holds the step state of an engine: batch sizes, progress (StepState), learning rates
// and loss scale. It computes the factors of losses and gradients from them. It only computes: it
// calls no collective and no other component of the engine.

#include <cstdint>
#include <vector>

#include "runtime/config/ds_config.h"
#include "runtime/engine/loss_scaler.h"
#include "runtime/engine/rates.h"
#include "runtime/engine/step_result.h"
#include "runtime/engine/step_state.h"
#include "runtime/optim/optimizer.h"
#include "runtime/plan/schedule/lr_schedule.h"

namespace ds::engine {

struct StepContext {
  config::BatchConfig batch;         // of the following steps
  bool managed_accumulation = true;  // managed_gradient_accumulation
  MicroBatchEnd micro_batch_end = MicroBatchEnd::kBackward;
  std::uint64_t seed = 0;  // of the blocks' random numbers
  NonFinitePolicy non_finite = NonFinitePolicy::kAsConfigured;
  bool decides_on_device = false;  // EngineOptions
  Rates rates{config::DsConfig{}, {}};
  precision::LossScaler loss_scaler{{}};
  StepState state;

  Accumulation accumulation() const {
    return {.micro_batches = batch.gradient_accumulation_steps, .managed = managed_accumulation};
  }
  bool IsUpdateDue() const { return state.IsUpdateDue(accumulation()); }
  bool IsInLastMicroBatch() const { return state.IsInLastMicroBatch(accumulation()); }

  // The factor of a micro-batch's loss in its backward.
  double backward_scale(bool scale_wrt_gas) const;
  // The number of labels that loss weights are relative to. It comes from the previous step, so all
  // ranks agree without communication. It keeps weights near 1, so that fp16 gradients have the
  // magnitude of a mean's gradients.
  double loss_unit() const;
  // Returns the divisor of the reduced gradients. Requires StepInProgress::mean_weight.
  double gradient_unit() const;
  // Returns the parameters of the next update.
  optim::Update MakeUpdate(double clip, std::vector<optim::ScheduledValues> scheduled) const;
  // Takes counts, loss scale and a rate that was set from the engine's state in a checkpoint.
  Status LoadProgress(const nlohmann::json& saved);
};

}  // namespace ds::engine
