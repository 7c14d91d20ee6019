#pragma once

// StageRun runs one step of a stage, or of the full model as a single stage. It stores the state
// between forward and backward of each chunk's micro-batches, and computes through the executor.
//
// Threads and errors: as Executor.

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/stage_channels.h"
#include "runtime/engine/step_result.h"
#include "runtime/models/bundle.h"
#include "runtime/plan/pipeline/stage_program.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

// MicroBatchState is the state of one micro-batch in one chunk: the tensors that its backward
// needs, and those received from and sent to other virtual stages.
struct MicroBatchState {
  NamedTensors received;           // activations of the previous virtual stage
  at::Tensor loss;                 // on the last virtual stage
  NamedTensors sent;               // activations for the next virtual stage
  NamedTensors gradients;          // of `sent`
  zero::DelayedGradients delayed;  // weight gradients, if computed after input gradients
};

class StageRun {
 public:
  // All arguments must outlive this object. A null `channels` means a single stage.
  StageRun(Executor& executor, const BatchSource& next_batch, StageChannels* channels);

  // Runs a program that is valid for the stage (checked by Executor::Run).
  StatusOr<StepResult> Run(const pipeline::StageProgram& program);

 private:
  struct MicroBatch {
    Bundle batch;  // with the keys of its random numbers, until its last forward
    std::vector<MicroBatchState> states;  // by chunk
  };

  StatusOr<StepResult> RunInWindow(const pipeline::StageProgram& program);
  Status Compute(const pipeline::Task& task);
  Status Forward(const pipeline::Task& task);
  void Backward(const pipeline::Task& task);
  void Move(const pipeline::Instruction& instruction);
  MicroBatch& FindMicroBatch(int number);
  MicroBatchState& MicroBatchStateOf(const pipeline::Task& task);

  Executor& executor_;
  const BatchSource& next_batch_;
  StageChannels* const channels_;
  const pipeline::VirtualStages virtual_stages_;
  std::map<int, MicroBatch> micro_batches_;
};

// The tensors that a bundle carries from block to block, by their names in it.
NamedTensors TakeActivations(Bundle bundle);
void PutActivations(const NamedTensors& tensors, Bundle* bundle);

}  // namespace ds::engine
