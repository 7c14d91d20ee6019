#pragma once

// JobSession: a planned job run by this process: daemons, signals, console, run directory, verdict.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "cli/flags/launch_flags.h"
#include "cli/job/job_request.h"
#include "cli/job/run_directory.h"
#include "cli/plan/launch_plan.h"
#include "cli/plan/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct JobSetup {
  std::string job_id;
  LaunchFlags flags;
  LaunchPlan plan;
  Environment exports;  // over the environment of a host
  // Rank 0 reads what dsrun reads.
  bool forward_input = false;
  // Our own trainer: it is told which device to use and reports steps.
  bool trains = false;
  std::int64_t total_steps = 0;  // 0 = not known
  // The position of --local_rank=N in argv; 0 = nowhere.
  int local_rank_position = 0;
  // These are as in JobRequest:
  std::string executable;
  std::string script;
  std::function<StatusOr<RankProgram>(int generation)> program;
  std::vector<std::string> notices;        // for the user, before anything starts
  std::vector<std::string> closing_lines;  // for the user, when all went well
  std::filesystem::path run_directory;     // where it is, or will be
  int first_generation = 0;                // as RunDirectory::NextGeneration says
  // Opens the run directory and writes what it is to say of the job, before anything starts.
  std::function<StatusOr<std::unique_ptr<RunDirectory>>()> open;
};

// Runs the job to its end and shows it; the exit status of dsrun. Call it once, before this process
// has any other thread that takes signals, which are the job's from then on. An error Status means
// that nothing ran.
StatusOr<int> RunJob(const JobSetup& setup);

}  // namespace ds::cli
