#pragma once

// Executor: runs the instructions of a step on one rank's engine. Engine's forward, backward and
// step are its instructions one by one, in the order that the user calls them; TrainStep has it run
// a whole program: that of this rank's stage, of which most jobs have one. It holds nothing but a
// reference to the engine, which outlives it.
//
// Collective: all ranks of a stage run the same instructions in the same order, those of all stages
// the programs of one schedule. Stages add up the gradients of what several hold, settle norm and
// verdicts, and tell each other the losses of the last one at Reduce and Step. Threads and errors:
// as Engine.

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/stage_channels.h"
#include "runtime/plan/pipeline/stage_program.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

struct EngineParts;
struct Passage;

// Gives the next micro-batch of this rank.
using BatchSource = std::function<StatusOr<Bundle>()>;

class Executor {
 public:
  explicit Executor(Engine& engine) : parts_(*engine.parts_) {}
  explicit Executor(EngineParts& parts) : parts_(parts) {}

  // Runs gradient_accumulation_steps micro-batches and the update they belong to, in the order of
  // the engine's schedule.
  StatusOr<StepResult> RunStep(const BatchSource& next_batch);

  // Runs a whole step of a stage; the forwards of its first chunk take their batches in the list's
  // order, and of what is in them what the virtual stage before has sent takes the place. Refused
  // before anything happens are a list that is not a step (CheckStageProgram), chunks that the
  // model does not have, and messages without channels.
  StatusOr<StepResult> Run(const pipeline::StageProgram& program, const BatchSource& next_batch,
                           StageChannels* channels = nullptr);

  // Runs the blocks from the first to the last, which has to set a loss; returns what that leaves.
  Bundle RunModel(Bundle bundle);
  // The same on all stages, without gradients: nothing but where the last blocks are.
  std::optional<Bundle> RunThroughStages(Bundle bundle);

  // The instructions. Of Backward, what is sharded is reduced as soon as a unit's gradients are
  // there; Reduce does the rest, once, and only where the step is due: before that it does nothing,
  // and Step says that the boundary is still to come.
  at::Tensor Forward(Bundle bundle);
  void Backward(const at::Tensor& loss, bool scale_wrt_gas);
  Status Reduce();
  StatusOr<StepResult> Step();

 private:
  friend StatusOr<Evaluation> Evaluate(Engine& engine, const BatchSource& next_batch,
                                       std::int64_t micro_batches);
  friend class StageRun;

  // Counts the micro-batch and tells its bundle what the blocks of all chunks need to know of it.
  void BeginMicroBatch(Bundle* bundle);
  Bundle RunChunk(Bundle bundle, int chunk);
  Bundle RunToLoss(Bundle bundle, int chunk);
  at::Tensor ForwardToLoss(Bundle bundle, int chunk);
  void BackwardFromLoss(const at::Tensor& loss, bool scale_wrt_gas, int chunk,
                        zero::DelayedGradients* delayed);
  // Takes a task that is a whole backward, or kInputGradient: then the gradients of weights wait in
  // the passage for BringWeightGradients.
  void RunBackward(Passage* passage, const pipeline::Task& task);
  void BringWeightGradients(Passage* passage, int chunk);
  // Runs `backward`, by which the gradients of the chunk's parameters arrive, each to be multiplied
  // by the factor, and ends the micro-batch there; or, with `delayed`, has them wait in it.
  void TakeGradients(int chunk, double arrival_factor, zero::DelayedGradients* delayed,
                     const std::function<void()>& backward);

  EngineParts& parts_;
};

}  // namespace ds::engine
