#pragma once

// JobStatus is the state of a job as `dsrun status` shows it, made from its events.
//
//     {"job": ID, "run_directory": PATH, "state": "starting"|"running"|"stopping"|"ended",
//      "generation": N, "world_size": N, "step": N|null, "total_steps": N|null, "progress": LINE,
//      "checkpoint": PATH|null, "hosts": [NAME, ...],
//      "ranks": [{"rank": N, "host": NAME, "state": "planned"|"running"|"exited", "pid": N|null,
//                 "exit_code": N|null, "signal": N|null, "memory_bytes": N|null}, ...],
//      "verdict": verdict.json|null}
//
// Pure. Not thread-safe.

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/console/progress.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/verdict/verdict.h"

namespace ds::cli {

class JobStatus {
 public:
  explicit JobStatus(const JobPlan& plan);

  // `now` is the time of a monotonic clock.
  void OnEvent(const HostEvent& event, std::chrono::nanoseconds now);
  // The ranks of the generation run: another agent has launched them.
  void OnTakenOver() { launched_ = true; }
  void OnStop() { stopping_ = true; }
  void OnEnd(const JobOutcome& outcome) { outcome_ = outcome; }
  const Progress& progress() const { return progress_; }
  nlohmann::ordered_json ToJson() const;

 private:
  struct Rank {
    std::string host;
    int pid = 0;
    bool exited = false;
    int exit_code = 0;
    int signal = 0;
    std::uint64_t memory_bytes = 0;
  };

  void BeginGeneration(int generation);
  Rank* Find(std::uint32_t rank);

  const std::string job_id_;
  const std::string run_directory_;
  const std::int64_t total_steps_;
  std::vector<std::string> hosts_;
  std::vector<Rank> ranks_;
  int generation_;
  std::string checkpoint_;
  bool launched_ = false;
  bool stopping_ = false;
  std::optional<JobOutcome> outcome_;  // after the end
  Progress progress_;
};

}  // namespace ds::cli
