#pragma once

// RunJob runs a planned job in this process, with its signals, console, daemons and verdict.

#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/run_directory.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Runs the job to its end, shows it, and returns the exit status of dsrun. `run_directory` already
// contains the job's description. Call it once, before this process has another thread that
// receives signals; from then on the job handles the signals. An error Status means that nothing
// ran.
StatusOr<int> RunJob(const JobPlan& plan, const Program& program, RunDirectory* run_directory);

}  // namespace ds::cli
