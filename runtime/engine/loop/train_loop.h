#pragma once

// The training loop: steps until the total, a checkpoint every so many of them, and what an
// observer is told on the way.
//
// Random numbers: before every step each rank seeds LibTorch's generator from (seed, step, rank),
// so the state of the generator never has to be saved and a resumed run draws what an uninterrupted
// one draws.
//
// A step that asks for a rewind (NonFinitePolicy::kRewind) sends the model, the optimizer and the
// schedule back to the newest good checkpoint of its line, and the run goes on with the data behind
// that step: the same data would lead to the same place. A second rewind to the same checkpoint
// ends the run.

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
#include "runtime/engine/loop/train_step.h"

namespace ds::engine {

struct TrainLoopOptions {
  std::int64_t total_steps = 0;  // counted from the start of the run, restarts and resumes included
  std::int64_t save_every = 0;   // steps between checkpoints, the last step is saved too; 0: none
  std::int64_t save_total_limit = 0;  // checkpoints to keep (format/retention.h); 0: all
  std::filesystem::path checkpoint_root;
  nlohmann::json written_by;               // SaveRequest::written_by
  checkpoint::Lineage* lineage = nullptr;  // SaveRequest::lineage
  std::uint64_t seed = 1234;
  // Gives the loss over data that is not learnt; empty: nobody asks. Collective. It is asked behind
  // every so many steps, and behind the last. Where it fails the checkpoint that is due is saved.
  std::function<StatusOr<Evaluation>()> evaluate;
  std::int64_t evaluate_every = 0;  // 0: behind the last only
  BestEvaluation* best = nullptr;   // is told each evaluation of rank 0; null: nobody asks
  // An evaluation better than all before gets a checkpoint, and takes that of the one before away,
  // unless it is there for another reason. With `best`.
  bool save_best = false;
  // Ends the run when so many evaluations have been no better; 0: never. With `best`.
  std::int64_t patience = 0;
  // Ends the run, with a checkpoint, behind the step in which the loop has taken so long; 0: never.
  std::chrono::duration<double> time_limit{0.0};
  const Clock* clock = &Clock::System();
};

// Told on every rank, in the order things happen.
class TrainLoopObserver {
 public:
  virtual ~TrainLoopObserver() = default;
  virtual void OnStep(const StepResult& result, double seconds) = 0;
  virtual void OnCheckpoint(std::int64_t step, const std::filesystem::path& path) = 0;
  virtual void OnRewind(const StepResult& result, const std::filesystem::path& checkpoint) = 0;
};

// The reason why the loop ended. `saving` tells a checkpoint that could not be written from
// everything else.
struct TrainLoopEnd {
  Status status;
  bool saving = false;
  std::string early = {};  // why it ended well before the total; empty: it did not
};

// Runs from engine.finished_steps() to the total. Collective: all ranks return the same kind of
// end. `parts` is everything a checkpoint holds, the engine included. LibTorch's exceptions pass
// through.
TrainLoopEnd RunTrainLoop(Engine& engine, const BatchSource& next_batch,
                          std::span<checkpoint::Stateful* const> parts,
                          const TrainLoopOptions& options, TrainLoopObserver& observer);

// Evaluate: the loss of a model over data that it does not learn from.

// Runs so many forward passes of each rank, without gradients and with the model in evaluation mode
// (no dropout), and changes nothing: neither parameters nor mode, nor the step in progress.
// Collective; all ranks return the same numbers. The loss of data without any label is 0.
StatusOr<Evaluation> Evaluate(Engine& engine, const BatchSource& next_batch,
                              std::int64_t micro_batches);

// SeedGenerators: LibTorch's generators start from all 64 bits of a seed. at::manual_seed takes the
// lower 32 for the CPU's, so that among a million streams some hundred would be equal.

// Seeds the default generators of all devices.
void SeedGenerators(std::uint64_t seed);

}  // namespace ds::engine
