#pragma once

// The parts of the executor: running a pipeline stage, recomputing blocks, and finishing a step.

#include <ATen/core/Tensor.h>
#include <map>
#include <vector>

#include "runtime/autograd/recompute.h"
#include "runtime/base/status.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/stage_channels.h"
#include "runtime/engine/step_result.h"
#include "runtime/models/block.h"
#include "runtime/models/bundle.h"
#include "runtime/plan/pipeline/stage_program.h"
#include "runtime/plan/schedule/lr_schedule.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

// StageRun runs one step of a stage, or of the full model as a single stage. It stores the state
// between forward and backward of each chunk's micro-batches, and computes through the executor.
//
// Threads and errors: as Executor.

// Passage is the state of one micro-batch in one chunk: the tensors that its backward needs, and
// those received from and sent to other virtual stages.
struct Passage {
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
    Bundle batch;                   // with the keys of its random numbers, until its last forward
    std::vector<Passage> passages;  // by chunk
  };

  StatusOr<StepResult> RunInWindow(const pipeline::StageProgram& program);
  Status Compute(const pipeline::Task& task);
  Status Forward(const pipeline::Task& task);
  void Backward(const pipeline::Task& task);
  void Move(const pipeline::Instruction& instruction);
  MicroBatch& FindMicroBatch(int number);
  Passage& PassageOf(const pipeline::Task& task);

  Executor& executor_;
  const BatchSource& next_batch_;
  StageChannels* const channels_;
  const pipeline::VirtualStages places_;
  std::map<int, MicroBatch> micro_batches_;
};

// The tensors that a bundle carries from block to block, by their names in it.
NamedTensors TakeActivations(Bundle bundle);
void PutActivations(const NamedTensors& tensors, Bundle* bundle);

// TakeDifferentiable and PutDifferentiable move the tensors of a bundle that gradients flow
// through; RecomputeBlock runs a block that saves only its inputs.

// Takes hidden, loss and extras (in the order of their names) out of the bundle. PutDifferentiable
// puts them, or as many tensors computed from them, back in the same order.
std::vector<at::Tensor> TakeDifferentiable(Bundle* bundle);
void PutDifferentiable(std::vector<at::Tensor> tensors, Bundle* bundle);

// Returns whether a parameter of the block needs a gradient.
bool TrainsParameters(const Block& block);

// Runs the block and saves only its inputs, from which the backward pass recomputes it
// (autograd/recompute.h). The second run does not change the block's buffers, such as the running
// mean of a batch normalisation. The block must outlive the graph.
Bundle RecomputeBlock(Block& block, Bundle bundle, activation::RecomputeOptions options);

// The end of a step, after the reduction of its gradients.

struct EngineParts;

// Computes norm and finite check across ranks, clips, updates, advances the schedule and reports.
// Requires reduced gradients (EngineParts::ReduceGradientsOnce). Collective.
StatusOr<StepResult> FinishStep(EngineParts& parts);

// Launches the part of FinishStep that runs on the device without the host: norm, decision and
// update. Waits for none of them. Returns the sum over all ranks of the squared reduced gradients,
// a double scalar on the device. Requires reduced gradients, AgreeOnWeight and
// ShardedOptimizer::takes_decision. Collective.
StatusOr<at::Tensor> LaunchUpdate(EngineParts& parts,
                                  std::vector<optim::ScheduledValues> scheduled);

}  // namespace ds::engine
