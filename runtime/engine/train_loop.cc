#include "runtime/engine/train_loop.h"

#include <chrono>
#include <optional>

#include "runtime/base/split_mix.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/format/catalog.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/seed_generators.h"

namespace ds::engine {
namespace {

// Gives neighbours in (seed, step, rank) unrelated streams.
void SeedStep(std::uint64_t seed, std::int64_t step, int rank) {
  const auto of_step = SplitMix(SplitMix(seed) ^ static_cast<std::uint64_t>(step));
  SeedGenerators(SplitMix(of_step ^ static_cast<std::uint64_t>(rank)));
}

bool IsSaveDue(const TrainLoopOptions& options, const StepResult& result) {
  if (options.save_every == 0 || result.rewind) return false;
  return result.step % options.save_every == 0 || result.step == options.total_steps;
}

bool IsEvaluationDue(const TrainLoopOptions& options, const StepResult& result) {
  if (!options.evaluate || result.rewind) return false;
  if (result.step == options.total_steps) return true;
  return options.evaluate_every > 0 && result.step % options.evaluate_every == 0;
}

// The checkpoint that is due behind a step, once.
class StepCheckpoint {
 public:
  StepCheckpoint(Engine& engine, std::span<checkpoint::Stateful* const> parts,
                 const TrainLoopOptions& options, const StepResult& result)
      : engine_(engine),
        parts_(parts),
        options_(options),
        step_(result.step),
        is_due_(IsSaveDue(options, result)) {}

  // Saves it, unless that is done or none is due. Collective.
  Status Save() {
    if (!is_due_ || path_) return OkStatus();
    DS_ASSIGN_OR_RETURN(path_, checkpoint::SaveCheckpoint({.root = options_.checkpoint_root,
                                                           .step = step_,
                                                           .written_by = options_.written_by,
                                                           .lineage = options_.lineage},
                                                          parts_, engine_.world()));
    return OkStatus();
  }
  const std::optional<std::filesystem::path>& path() const { return path_; }

 private:
  Engine& engine_;
  std::span<checkpoint::Stateful* const> parts_;
  const TrainLoopOptions& options_;
  std::int64_t step_;
  bool is_due_;
  std::optional<std::filesystem::path> path_;
};

// Loads the engine, and nothing else, from the newest good checkpoint. Rank 0 looks for it.
StatusOr<std::filesystem::path> Rewind(Engine& engine, const TrainLoopOptions& options,
                                       std::int64_t last_rewind) {
  std::int64_t step = -1;
  if (engine.world().rank() == 0) {
    const auto newest = checkpoint::FindNewestGood(options.checkpoint_root);
    if (newest.ok() && newest->found) step = newest->found->step;
  }
  step = comm::GatherNumber(step, engine.world())[0];
  if (step < 0) {
    return FailedPreconditionError("there is no good checkpoint to rewind to in " +
                                   options.checkpoint_root.string());
  }
  if (step == last_rewind) {
    return FailedPreconditionError("the run has been rewound to step " + std::to_string(step) +
                                   " before, and has not come to another checkpoint since");
  }
  const auto path = checkpoint::DirectoryOfStep(options.checkpoint_root, step);
  checkpoint::Stateful* const parts[] = {&engine.state()};
  DS_RETURN_IF_ERROR(checkpoint::LoadCheckpoint(path, parts, engine.world(), options.lineage));
  return path;
}

}  // namespace

TrainLoopEnd RunTrainLoop(Engine& engine, const BatchSource& next_batch,
                          std::span<checkpoint::Stateful* const> parts,
                          const TrainLoopOptions& options, TrainLoopObserver& observer) {
  std::int64_t last_rewind = -1;
  while (engine.finished_steps() < options.total_steps) {
    const auto begin = options.clock->Now();
    SeedStep(options.seed, engine.finished_steps(), engine.world().rank());
    auto result = TrainStep(engine, next_batch);
    if (!result.ok()) return {.status = result.status()};
    const std::chrono::duration<double> seconds = options.clock->Now() - begin;
    StepCheckpoint saved(engine, parts, options, *result);
    if (IsEvaluationDue(options, *result)) {
      // One that fails, or that somebody ends, takes with it no step that is to be kept.
      if (Status status = saved.Save(); !status.ok()) return {.status = status, .saving = true};
      auto evaluation = options.evaluate();
      if (!evaluation.ok()) return {.status = evaluation.status().WithContext("evaluation")};
      result->evaluation = *evaluation;
    }
    observer.OnStep(*result, seconds.count());
    if (result->rewind) {
      const auto path = Rewind(engine, options, last_rewind);
      if (!path.ok()) return {.status = path.status().WithContext(result->non_finite)};
      observer.OnRewind(*result, *path);
      last_rewind = engine.finished_steps();
      continue;
    }
    if (Status status = saved.Save(); !status.ok()) return {.status = status, .saving = true};
    if (saved.path()) observer.OnCheckpoint(result->step, *saved.path());
  }
  return {};
}

}  // namespace ds::engine
