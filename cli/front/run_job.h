#pragma once

// RunJob starts the agent of a planned job (agent_process.h) and is its first front.

#include <functional>
#include <string>

#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/run_directory.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Runs the job to its end, shows it, and returns the exit status of dsrun; with --detach, runs it
// until its ranks have started. `run_directory` already contains the job's description. `after` as
// in AgentJob; it is called in the agent. Call it once, before this process has another thread;
// from then on the job handles the signals. An error Status means that nothing ran.
StatusOr<int> RunJob(const JobPlan& plan, const Program& program, RunDirectory* run_directory,
                     std::function<std::string(bool failed)> after = nullptr);

}  // namespace ds::cli
