#pragma once

// TrainProgram provides the dsrank command of each generation of a training job, and its
// checkpoint.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cli/job/program.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"
#include "runtime/plan/memory/job_memory.h"

namespace ds::cli {

// A job with predictable memory use.
struct PredictedJob {
  config::DsConfig config;
  engine::JobShape shape;
};

class TrainProgram : public Program {
 public:
  // The first generation starts from `job`. Each later one starts from the newest good checkpoint,
  // or like the first if there is none; RankProgram::unusable then describes the run's damaged
  // checkpoint. A restart gets the remaining part of the job's max_minutes, measured from here by
  // `clock`, and trains at least one step. ForGeneration makes the resumed checkpoint the head of
  // the job's lineage. It also writes a mark by which ranks recognize the checkpoint folder that
  // dsrun uses.
  TrainProgram(config::TrainJob job, int first_generation,
               std::optional<PredictedJob> predicted = std::nullopt,
               const Clock& clock = Clock::System())
      : job_(std::move(job)),
        first_generation_(first_generation),
        predicted_(std::move(predicted)),
        clock_(clock),
        begin_(clock.Now()) {}
  // Removes the mark of the last generation. Its ranks do not remove it if they failed early.
  ~TrainProgram() override { RemoveMark(); }
  TrainProgram(const TrainProgram&) = delete;
  TrainProgram& operator=(const TrainProgram&) = delete;

  StatusOr<RankProgram> ForGeneration(int generation) const override;
  std::string AdviseOnMemory(std::int64_t rank_bytes, bool on_gpus) const override;

 private:
  double LeftMinutes() const;  // of max_minutes; 0 = no limit
  void RemoveMark() const;

  const config::TrainJob job_;
  const int first_generation_;
  const std::optional<PredictedJob> predicted_;
  const Clock& clock_;
  const std::chrono::nanoseconds begin_;
  mutable std::string mark_;  // in the checkpoint folder; "" = not written
};

// Finds the checkpoint under `root` to resume from. `named` is "" for the newest good one, else a
// folder name ("step-20"). Returns kDataLoss if the named one is damaged, kNotFound if there is no
// usable one, and kUnavailable if one cannot be read now. Adds a notice for each damaged checkpoint
// that was skipped.
struct ResumePoint {
  std::string directory;
  std::int64_t step = 0;
};
StatusOr<ResumePoint> FindResumePoint(const std::string& root, const std::string& named,
                                      std::vector<std::string>* notices);

// Rejects a folder with checkpoints of another run, because a new run would overwrite them.
Status CheckHoldsNoCheckpoints(const std::filesystem::path& root);

}  // namespace ds::cli
