#pragma once

// The training loop: runs steps until the total, saves a checkpoint at a fixed interval, and
// notifies an observer.
//
// Random numbers: before every step each rank seeds LibTorch's generator from (seed, step, rank).
// So the generator's state is not saved, and a resumed run draws the same numbers as an
// uninterrupted one.
//
// A step that asks for a rewind (NonFinitePolicy::kRewind) resets the model, the optimizer and the
// schedule to the newest good checkpoint of its lineage. The run continues with the data after that
// step, because the same data would fail again. A second rewind to the same checkpoint ends the
// run.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/stateful.h"
#include "runtime/checkpoint_format/lineage.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/loop/best_evaluation.h"

namespace ds::engine {

struct TrainLoopOptions {
  std::int64_t total_steps = 0;  // counted from the start of the run, over restarts and resumes
  std::int64_t save_every = 0;   // steps between checkpoints; the last step is saved too; 0: none
  std::int64_t save_total_limit = 0;  // checkpoints to keep (checkpoint_format/retention.h); 0: all
  std::filesystem::path checkpoint_root;
  nlohmann::json written_by;               // SaveRequest::written_by
  checkpoint::Lineage* lineage = nullptr;  // SaveRequest::lineage
  std::uint64_t seed = 1234;
  // Returns the loss on evaluation data; empty: no evaluation. Collective. Called every
  // `evaluate_every` steps and after the last one. If it fails, a checkpoint that is due is saved
  // first.
  std::function<StatusOr<Evaluation>()> evaluate;
  std::int64_t evaluate_every = 0;  // 0: after the last step only
  BestEvaluation* best = nullptr;   // gets rank 0's evaluations; null: not tracked
  // Saves a checkpoint after each evaluation that is better than all before, and removes the former
  // best checkpoint unless it was saved for another reason. Requires `best`.
  bool save_best = false;
  // Ends the run after this number of evaluations in a row without a lower loss; 0: never. Requires
  // `best`.
  std::int64_t patience = 0;
  // Ends the run, with a checkpoint, after the step in which the loop reaches this time; 0: never.
  std::chrono::duration<double> time_limit{0.0};
  const Clock* clock = &Clock::System();
};

// Called on every rank, in order.
class TrainLoopObserver {
 public:
  virtual ~TrainLoopObserver() = default;
  virtual void OnStep(const StepResult& result, double seconds) = 0;
  virtual void OnCheckpoint(std::int64_t step, const std::filesystem::path& path) = 0;
  virtual void OnRewind(const StepResult& result, const std::filesystem::path& checkpoint) = 0;
};

// The reason why the loop ended. `saving` is true if a checkpoint could not be written.
struct TrainLoopEnd {
  Status status;
  bool saving = false;
  std::string early = {};  // why it ended without error before the total; empty: it did not
};

// Runs from engine.finished_steps() to the total. Collective: all ranks return the same kind of
// end. `parts` lists all parts of a checkpoint, the engine included. LibTorch's exceptions
// propagate.
TrainLoopEnd RunTrainLoop(Engine& engine, const BatchSource& next_batch,
                          std::span<checkpoint::Stateful* const> parts,
                          const TrainLoopOptions& options, TrainLoopObserver& observer);

// SeedGenerators seeds LibTorch's generators with all 64 bits of a seed. at::manual_seed uses only
// the lower 32 for the CPU generator: among a million streams about a hundred would be equal. It
// seeds the default generators of all devices.
void SeedGenerators(std::uint64_t seed);

}  // namespace ds::engine
