#pragma once

// RunJob: a planned job run by this process: signals, console, daemons, verdict.

#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/run_directory.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Runs the job to its end and shows it; the exit status of dsrun. `run_directory` says already what
// the job is. Call it once, before this process has any other thread that takes signals, which are
// the job's from then on. An error Status means that nothing ran.
StatusOr<int> RunJob(const JobPlan& plan, const Program& program, RunDirectory* run_directory);

}  // namespace ds::cli
