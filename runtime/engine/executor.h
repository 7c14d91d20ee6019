#pragma once

// Executor: runs the instructions of a step on one rank's engine. Engine's forward, backward and
// step are its instructions one by one, in the order that the user calls them; TrainStep has it run
// a whole StepPlan. It holds nothing but a reference to the engine, which outlives it.
//
// Collective: all ranks run the same instructions in the same order. Threads and errors: as Engine.

#include <ATen/core/Tensor.h>

#include <functional>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/step_plan.h"

namespace ds::engine {

struct EngineParts;

// Gives the next micro-batch of this rank.
using BatchSource = std::function<StatusOr<Bundle>()>;

class Executor {
 public:
  explicit Executor(Engine& engine) : parts_(*engine.parts_) {}
  explicit Executor(EngineParts& parts) : parts_(parts) {}

  // Runs a whole step; its forwards take their batches in the list's order. A list that is not a
  // step (CheckStepPlan) is refused before anything happens.
  StatusOr<StepResult> Run(const StepPlan& plan, const BatchSource& next_batch);

  // The instructions. Of Backward, what is sharded is reduced as soon as a unit's gradients are
  // there; Reduce does the rest, once, and only where the step is due: before that it does nothing,
  // and Step says that the boundary is still to come.
  at::Tensor Forward(Bundle bundle);
  void Backward(const at::Tensor& loss, bool scale_wrt_gas);
  Status Reduce();
  StatusOr<StepResult> Step();

 private:
  EngineParts& parts_;
};

}  // namespace ds::engine
