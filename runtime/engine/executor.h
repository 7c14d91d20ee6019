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
#include "runtime/pipeline/stage_program.h"

namespace ds::engine {

struct EngineParts;

// Gives the next micro-batch of this rank.
using BatchSource = std::function<StatusOr<Bundle>()>;

class Executor {
 public:
  explicit Executor(Engine& engine) : parts_(*engine.parts_) {}
  explicit Executor(EngineParts& parts) : parts_(parts) {}

  // Runs gradient_accumulation_steps micro-batches and the update they belong to, in the order of
  // the engine's schedule.
  StatusOr<StepResult> RunStep(const BatchSource& next_batch);

  // Runs a whole step of a stage; its forwards take their batches in the list's order, and of what
  // is in them what the stage before has sent takes the place. Refused before anything happens are
  // a list that is not a step (CheckStageProgram), what is not built (chunks, a backward in two
  // parts) and messages without channels.
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
  struct MicroBatch;  // between its forward and its backward

  void RunForward(Bundle batch, bool is_last_stage, MicroBatch* micro_batch);
  void RunBackward(MicroBatch* micro_batch);
  void Move(pipeline::Instruction::Kind kind, int peer, StageChannels& channels,
            MicroBatch* micro_batch);
  Bundle RunBlocks(Bundle bundle);
  // Runs `backward`, by which the parameters' gradients arrive, each to be multiplied by the
  // factor, and ends the micro-batch.
  void TakeGradients(double arrival_factor, const std::function<void()>& backward);

  EngineParts& parts_;
};

}  // namespace ds::engine
