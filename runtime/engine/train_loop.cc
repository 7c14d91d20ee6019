#include "runtime/engine/train_loop.h"

#include <chrono>

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

bool IsSaveDue(const TrainLoopOptions& options, std::int64_t step) {
  if (options.save_every == 0) return false;
  return step % options.save_every == 0 || step == options.total_steps;
}

bool IsEvaluationDue(const TrainLoopOptions& options, const StepResult& result) {
  if (!options.evaluate || result.rewind) return false;
  if (result.step == options.total_steps) return true;
  return options.evaluate_every > 0 && result.step % options.evaluate_every == 0;
}

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
    if (IsEvaluationDue(options, *result)) {
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

    if (IsSaveDue(options, result->step)) {
      auto path = checkpoint::SaveCheckpoint({.root = options.checkpoint_root,
                                              .step = result->step,
                                              .written_by = options.written_by,
                                              .lineage = options.lineage},
                                             parts, engine.world());
      if (!path.ok()) return {.status = path.status(), .saving = true};
      observer.OnCheckpoint(result->step, *path);
    }
  }
  return {};
}

}  // namespace ds::engine
