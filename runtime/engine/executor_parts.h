#pragma once

// The executor computes a step with these parts: the run of a pipeline's stage, blocks that are
// computed again, and the end of the step.

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

// StageRun: one step of a stage, or of a whole model as its only one: what is between the forward
// and the backward of each of its chunks' micro-batches. It computes through the executor.
//
// Threads and errors: as Executor.

// Passage holds what a chunk's backward needs of its forward, and what other virtual stages have
// sent for it or will get of it.
struct Passage {
  NamedTensors received;           // activations of the virtual stage before
  at::Tensor loss;                 // of the last one
  NamedTensors sent;               // activations for the one behind
  NamedTensors gradients;          // of these
  zero::DelayedGradients delayed;  // of the weights, where they come behind those of the inputs
};

class StageRun {
 public:
  // Borrows all of them. Without `channels` there are no other stages.
  StageRun(Executor& executor, const BatchSource& next_batch, StageChannels* channels);

  // Runs a list that suits the stage, as Executor::Run does.
  StatusOr<StepResult> Run(const pipeline::StageProgram& program);

 private:
  struct MicroBatch {
    Bundle batch;  // with what its random numbers are drawn by, until its last forward
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

// The tensors that a bundle takes from block to block, by their places in it.
NamedTensors TakeActivations(Bundle bundle);
void PutActivations(const NamedTensors& tensors, Bundle* bundle);

// The tensors of a bundle that gradients flow through, and a block that keeps nothing but them.

// Takes hidden, loss and extras, in the order of their names, out of the bundle, and puts them, or
// what has become of them, back: as many, in the same order.
std::vector<at::Tensor> TakeDifferentiable(Bundle* bundle);
void PutDifferentiable(std::vector<at::Tensor> tensors, Bundle* bundle);

// Tells whether a parameter of the block needs a gradient.
bool TrainsParameters(const Block& block);

// Runs the block and keeps what it was given, from which the backward pass computes it again
// (autograd/recompute.h). The block's buffers, which a forward pass may change (the running mean
// of a batch normalisation), are then left as they were. The block outlives the graph.
Bundle RecomputeBlock(Block& block, Bundle bundle, activation::RecomputeOptions options);

// The end of a step, behind the reduction of its gradients.

struct EngineParts;

// Norm and finite check across ranks, clip, update, schedule, report. Requires reduced gradients
// (EngineParts::ReduceGradientsOnce). Collective.
StatusOr<StepResult> FinishStep(EngineParts& parts);

// The part of it that a device goes through by itself: issues norm, decision and update and waits
// for none of them. Returns the sum over all ranks of the squares of what has been reduced, a
// double scalar on the device. Requires reduced gradients, AgreeOnWeight and
// ShardedOptimizer::takes_decision. Collective.
StatusOr<at::Tensor> LaunchUpdate(EngineParts& parts,
                                  std::vector<optim::ScheduledValues> scheduled);

}  // namespace ds::engine
