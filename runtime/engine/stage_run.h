#pragma once

// StageRun: one step of a stage, or of a whole model as its only one: what is between the forward
// and the backward of each of its chunks' micro-batches. It computes through the executor.
//
// Threads and errors: as Executor.

#include <map>
#include <vector>

#include "runtime/engine/executor.h"
#include "runtime/engine/stage_channels.h"
#include "runtime/models/bundle.h"
#include "runtime/pipeline/stage_program.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

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

}  // namespace ds::engine
