#include "runtime/engine/loop/train_loop.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/split_mix.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/retention.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"

namespace ds::engine {

void SeedGenerators(std::uint64_t seed) {
  at::manual_seed(seed);
  // Replaces the CPU generator's state: at::manual_seed has used only 32 bits of the seed for it.
  at::mt19937 engine(seed);
  at::mt19937_data_pod data = engine.data();
  std::uint64_t next = SplitMix(seed);
  for (std::uint32_t& word : data.state_) word = static_cast<std::uint32_t>(SplitMix(next++));
  engine.set_data(data);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  at::check_generator<at::CPUGeneratorImpl>(generator)->set_engine(engine);
}

namespace {

// Seeds the generators for a step of this rank. Adjacent (seed, step, rank) get unrelated streams.
void SeedStep(std::uint64_t seed, std::int64_t step, int rank) {
  const auto of_step = SplitMix(SplitMix(seed) ^ static_cast<std::uint64_t>(step));
  SeedGenerators(SplitMix(of_step ^ static_cast<std::uint64_t>(rank)));
}

bool IsEvaluationDue(const TrainLoopOptions& options, const StepResult& result) {
  if (!options.evaluate || result.rewind) return false;
  if (result.step == options.total_steps) return true;
  return options.evaluate_every > 0 && result.step % options.evaluate_every == 0;
}

// Loads the engine's state from the newest good checkpoint, which rank 0 finds, and returns the
// checkpoint's folder. The position in the data stays: the run continues after the failed step.
// Fails if the last rewind, to `last_rewind`, has led to the same checkpoint. Collective.
StatusOr<std::filesystem::path> Rewind(Engine& engine, const TrainLoopOptions& options,
                                       std::int64_t last_rewind) {
  std::int64_t step = -1;
  Status looked;
  if (engine.world().rank() == 0) {
    const auto newest = checkpoint::FindNewestGood(options.checkpoint_root);
    if (newest.ok() && newest->found) step = newest->found->step;
    // A folder that does not exist has no checkpoint. Other errors may hide a good one.
    const bool is_unclear = !newest.ok() && newest.status().code() != StatusCode::kNotFound;
    if (is_unclear) looked = newest.status();
  }
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(looked, engine.world()));
  step = comm::GatherNumber(step, engine.world())[0];
  if (step < 0) {
    return FailedPreconditionError("there is no good checkpoint to rewind to in " +
                                   options.checkpoint_root.string());
  }
  if (step == last_rewind) {
    return FailedPreconditionError("the run has been rewound to step " + std::to_string(step) +
                                   " before, and has not reached another checkpoint since");
  }
  const auto path = checkpoint::DirectoryOfStep(options.checkpoint_root, step);
  checkpoint::Stateful* const parts[] = {&engine.state()};
  DS_RETURN_IF_ERROR(checkpoint::LoadCheckpoint(path, parts, engine.world(), options.lineage));
  return path;
}

// The loop of one run, with its state between steps.
class TrainLoop {
 public:
  TrainLoop(Engine& engine, const BatchSource& next_batch,
            std::span<checkpoint::Stateful* const> parts, const TrainLoopOptions& options,
            TrainLoopObserver& observer)
      : engine_(engine),
        next_batch_(next_batch),
        parts_(parts),
        options_(options),
        observer_(observer),
        begin_(options.clock->Now()) {}

  TrainLoopEnd Run();

 private:
  Status Evaluate(StepResult* result);
  // Returns the reason to end the run here, before its total; "" if there is none. Collective.
  std::string FindEarlyEnd();
  bool IsOutOfPatience() const {
    return options_.patience > 0 && options_.best->evaluations_since() >= options_.patience;
  }
  bool IsOutOfTime() const;
  // Returns whether a checkpoint is due after this step, whether or not its evaluation is the best.
  bool IsSaveDue(std::int64_t step) const;
  Status Save(std::int64_t step);
  // Removes, on rank 0, the checkpoints that a save has replaced: the former best evaluation's, if
  // it was saved only because it was the best, and the oldest ones above the limit. Logs a warning
  // if it cannot remove one.
  void RemoveOld(std::int64_t saved_step, bool is_best) const;

  Engine& engine_;
  const BatchSource& next_batch_;
  const std::span<checkpoint::Stateful* const> parts_;
  const TrainLoopOptions& options_;
  TrainLoopObserver& observer_;
  const std::chrono::nanoseconds begin_;
  bool is_better_ = false;  // the latest step has an evaluation, the best so far
  std::optional<BestEvaluation::Best> former_best_;  // before the latest evaluation
  std::string early_;                                // TrainLoopEnd::early
  bool out_of_time_ = false;
};

Status TrainLoop::Evaluate(StepResult* result) {
  is_better_ = false;
  if (!IsEvaluationDue(options_, *result)) return OkStatus();
  auto evaluation = options_.evaluate();
  if (!evaluation.ok()) return evaluation.status().WithContext("evaluation");
  result->evaluation = *evaluation;
  if (options_.best == nullptr) return OkStatus();
  former_best_ = options_.best->best();
  // Rank 0's loss counts. On another machine, a rank with the same samples may differ in the last
  // bits; saving is collective, so all ranks have to decide alike.
  const double loss = comm::GatherNumbers({evaluation->loss}, engine_.world())[0][0];
  is_better_ = options_.best->Add(result->step, loss);
  return OkStatus();
}

bool TrainLoop::IsOutOfTime() const {
  if (options_.time_limit.count() == 0.0) return false;
  const bool is_over = options_.clock->Now() - begin_ >= options_.time_limit;
  return comm::GatherNumber(is_over ? 1 : 0, engine_.world())[0] == 1;  // rank 0's clock decides
}

std::string TrainLoop::FindEarlyEnd() {
  const std::string at = " at step " + std::to_string(engine_.finished_steps()) + " of " +
                         std::to_string(options_.total_steps);
  if (engine_.finished_steps() >= options_.total_steps) return "";
  if (IsOutOfPatience()) {
    return "training ends" + at + ": evaluations in a row without a lower loss: " +
           std::to_string(options_.best->evaluations_since());
  }
  out_of_time_ = IsOutOfTime();
  return out_of_time_ ? "training ends" + at + ": its time limit (--max_minutes) is reached" : "";
}

bool TrainLoop::IsSaveDue(std::int64_t step) const {
  if (out_of_time_) return true;
  if (options_.save_every == 0) return false;
  return step % options_.save_every == 0 || step == options_.total_steps || !early_.empty();
}

void TrainLoop::RemoveOld(std::int64_t saved_step, bool is_best) const {
  if (engine_.world().rank() != 0) return;
  // Without a lineage every checkpoint up to the saved one counts as this run's.
  const auto lineage =
      options_.lineage ? *options_.lineage : checkpoint::AssumeLineage(saved_step + 1);
  if (is_best && former_best_ && former_best_->saved_for_it) {
    const Status removed =
        checkpoint::RemoveCheckpoint(options_.checkpoint_root, former_best_->step, lineage);
    if (!removed.ok()) LogWarning("the former best checkpoint is left: " + removed.message());
  }
  checkpoint::RetentionPolicy policy{.limit = options_.save_total_limit};
  if (options_.save_best && options_.best->best()) policy.best = options_.best->best()->step;
  checkpoint::PruneCheckpoints(options_.checkpoint_root, policy, lineage);
}

Status TrainLoop::Save(std::int64_t step) {
  const bool is_due = IsSaveDue(step), is_best = options_.save_best && is_better_;
  if (!is_due && !is_best) return OkStatus();
  // Before the save, because the checkpoint contains the mark.
  if (!is_due) options_.best->MarkSavedForIt();
  DS_ASSIGN_OR_RETURN(const std::filesystem::path path,
                      checkpoint::SaveCheckpoint({.root = options_.checkpoint_root,
                                                  .step = step,
                                                  .written_by = options_.written_by,
                                                  .lineage = options_.lineage},
                                                 parts_, engine_.world()));
  observer_.OnCheckpoint(step, path);
  RemoveOld(step, is_best);
  return OkStatus();
}

TrainLoopEnd TrainLoop::Run() {
  std::int64_t last_rewind = -1;
  if (IsOutOfPatience()) early_ = FindEarlyEnd();  // a resumed run may already have ended
  while (engine_.finished_steps() < options_.total_steps && early_.empty()) {
    const auto begin = options_.clock->Now();
    SeedStep(options_.seed, engine_.finished_steps(), engine_.world().rank());
    auto result = TrainStep(engine_, next_batch_);
    if (!result.ok()) return {.status = result.status()};
    const std::chrono::duration<double> seconds = options_.clock->Now() - begin;
    if (const Status status = Evaluate(&*result); !status.ok()) {
      // Saves a due checkpoint, so that no step is lost. The evaluation's error is the one to fix,
      // even if saving fails.
      static_cast<void>(Save(result->step));
      return {.status = status};
    }
    observer_.OnStep(*result, seconds.count());
    if (result->rewind) {
      const auto path = Rewind(engine_, options_, last_rewind);
      if (!path.ok()) return {.status = path.status().WithContext(result->non_finite)};
      observer_.OnRewind(*result, *path);
      last_rewind = engine_.finished_steps();
      continue;
    }
    early_ = FindEarlyEnd();
    if (const Status status = Save(result->step); !status.ok()) {
      return {.status = status, .saving = true};
    }
  }
  return {.early = early_};
}

}  // namespace

TrainLoopEnd RunTrainLoop(Engine& engine, const BatchSource& next_batch,
                          std::span<checkpoint::Stateful* const> parts,
                          const TrainLoopOptions& options, TrainLoopObserver& observer) {
  return TrainLoop(engine, next_batch, parts, options, observer).Run();
}

}  // namespace ds::engine
