#pragma once

// Executor runs the instructions of a step on one rank's engine. Engine's forward, backward and
// step run its instructions one by one, in the order of the user's calls. TrainStep runs the full
// program of this rank's stage; most jobs have a single stage. It only holds a reference to the
// engine, which must outlive it.
//
// Collective: all ranks of a stage run the same instructions in the same order, and all stages run
// programs of one schedule. At Reduce and Step, stages add up the gradients of shared parameters,
// agree on norm and verdicts, and receive the losses of the last stage. Threads and errors: as
// Engine.

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/stage_channels.h"
#include "runtime/engine/step_update.h"
#include "runtime/plan/pipeline/stage_program.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

class ChunkRunner;
struct EngineComponents;
struct MicroBatchState;
struct RankTopology;
struct StepContext;
struct StepReporter;
struct TrainedModel;

// Returns the next micro-batch of this rank.
using BatchSource = std::function<StatusOr<Bundle>()>;

class Executor {
 public:
  explicit Executor(Engine& engine);
  // Runs the model through `runner`, which must outlive this object: for a model of units.
  Executor(Engine& engine, ChunkRunner& runner);
  explicit Executor(EngineComponents& engine);

  // Runs gradient_accumulation_steps micro-batches and their update, in the order of the engine's
  // schedule.
  StatusOr<StepResult> RunStep(const BatchSource& next_batch);

  // Runs a full step of a stage. Forwards of its first chunk take their batches in program order;
  // activations from the previous virtual stage replace the batch's. Fails before it runs
  // anything if the program is not a step (CheckStageProgram), names chunks that the model does not
  // have, or has messages while `channels` is null.
  StatusOr<StepResult> Run(const pipeline::StageProgram& program, const BatchSource& next_batch,
                           StageChannels* channels = nullptr);

  // Runs all blocks and returns the last one's bundle. Throws if it has no loss.
  Bundle RunModel(Bundle bundle);
  // Runs the blocks of all stages, without gradients. Returns nullopt except on the last stage.
  std::optional<Bundle> RunThroughStages(Bundle bundle);

  // The instructions. Backward reduces the sharded gradients of a unit as soon as they are
  // complete. Reduce reduces the remaining gradients, once, if the step is due; otherwise it does
  // nothing, and Step returns StepResult::boundary false.
  at::Tensor Forward(Bundle bundle);
  void Backward(const at::Tensor& loss, bool scale_wrt_gas, bool retain_graph = false);
  Status Reduce();
  StatusOr<StepResult> Step();

 private:
  friend class StageRun;
  friend class UnitPasses;
  Executor(EngineComponents& engine, ChunkRunner& runner);

  // Counts the samples and sets the bundle's fields that the blocks of all chunks read.
  void BeginMicroBatch(Bundle* bundle);
  void CountSamples(std::int64_t samples, std::int64_t labels);
  // The callers of these two run the pass in between. It records gradients if GradMode is enabled.
  void BeginForwardPass();
  void EndForwardPass();
  Bundle RunChunk(Bundle bundle, int chunk);
  Bundle RunToLoss(Bundle bundle, int chunk);
  at::Tensor ForwardToLoss(Bundle bundle, int chunk);
  void BackwardFromLoss(const at::Tensor& loss, bool scale_wrt_gas, int chunk,
                        zero::DelayedGradients* delayed, bool retain_graph = false);
  // These two are called around a backward pass that the user has started. `loss` is its value.
  void BeginUserBackward(const at::Tensor& loss);
  void EndUserBackward();
  // After a backward pass: the micro-batch has ended, or step() will end it.
  void EndOrOpenMicroBatch();
  // Runs a full backward or kInputGradient. With kInputGradient the weight gradients stay in the
  // state until BringWeightGradients.
  void RunBackward(MicroBatchState* state, const pipeline::Task& task);
  void BringWeightGradients(MicroBatchState* state, int chunk);
  // TakeGradients calls these two around the pass.
  void BeginGradients(double arrival_factor, zero::DelayedGradients* delayed);
  void EndGradients(int chunk, zero::DelayedGradients* delayed);
  // Runs `backward`, which produces the gradients of the chunk's parameters, each multiplied by
  // `arrival_factor`. If `delayed` is not null, it stores them there instead.
  void TakeGradients(int chunk, double arrival_factor, zero::DelayedGradients* delayed,
                     const std::function<void()>& backward);

  bool BringsLastGradients() const;
  zero::GradientEnd ChooseGradientEnd() const;

  const config::DsConfig& config_;
  RankTopology& topology_;
  TrainedModel& model_;
  ChunkRunner& runner_;
  StepContext& step_;
  StepReporter& reporter_;
  StepUpdate update_;
};

// Runs gradient_accumulation_steps micro-batches and their update. Collective.
inline StatusOr<StepResult> TrainStep(Engine& engine, const BatchSource& next_batch) {
  return Executor(engine).RunStep(next_batch);
}

}  // namespace ds::engine
