#pragma once

// TrainProgram: what dsrank executes in each generation of a training job, and from which
// checkpoint it goes on.

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

// A job whose memory can be predicted.
struct PredictedJob {
  config::DsConfig config;
  engine::JobShape shape;
};

class TrainProgram : public Program {
 public:
  // The first generation starts as `job` says; each later one from the newest good checkpoint, or
  // like the first when there is none. RankProgram::unusable then tells of the damaged one that the
  // run had. A restart has what is left of the job's max_minutes,
  // which run from here on by `clock`; it trains one step at least. ForGeneration makes the
  // checkpoint that ranks go on from the head of the job's line, and a mark by which they know the
  // folder that dsrun looks into.
  TrainProgram(config::TrainJob job, int first_generation,
               std::optional<PredictedJob> predicted = std::nullopt,
               const Clock& clock = Clock::System())
      : job_(std::move(job)),
        first_generation_(first_generation),
        predicted_(std::move(predicted)),
        clock_(clock),
        begin_(clock.Now()) {}
  // Removes the mark of the last generation, which its ranks have not where they failed early.
  ~TrainProgram() override { RemoveMark(); }
  TrainProgram(const TrainProgram&) = delete;
  TrainProgram& operator=(const TrainProgram&) = delete;

  StatusOr<RankProgram> ForGeneration(int generation) const override;
  std::string AdviseOnMemory(std::int64_t rank_bytes, bool on_gpus) const override;

 private:
  double LeftMinutes() const;  // of max_minutes; 0: no limit
  void RemoveMark() const;

  const config::TrainJob job_;
  const int first_generation_;
  const std::optional<PredictedJob> predicted_;
  const Clock& clock_;
  const std::chrono::nanoseconds begin_;
  mutable std::string mark_;  // of the folder of checkpoints; "": none has been made
};

// Finds the checkpoint under `root` to go on from. `named` is "" for the newest good one, else a
// folder name ("step-20"). kDataLoss when the named one is damaged, kNotFound when there is none to
// go on from, kUnavailable when one cannot be read now. `notices` says which damaged ones were
// passed over.
struct ResumePoint {
  std::string directory;
  std::int64_t step = 0;
};
StatusOr<ResumePoint> FindResumePoint(const std::string& root, const std::string& named,
                                      std::vector<std::string>* notices);

// Refuses a folder in which another run has checkpoints: a new run would save over them.
Status CheckHoldsNoCheckpoints(const std::filesystem::path& root);

}  // namespace ds::cli
