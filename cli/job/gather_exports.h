#pragma once

// GatherExports: reads the env files of a job and resolves what -x asks for, before anything
// starts.
//
// Threads: one at a time (it reads this process's environment).

#include <string>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/plan/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct GatheredExports {
  Environment environment;
  std::vector<std::string> notices;  // env files that nobody named
};

// Reads .deepspeed_env of the home folder, then of the working directory (DS_ENV_FILE names
// another), then --env_file, then -x. Refuses variables that contradict a flag.
StatusOr<GatheredExports> GatherExports(const LaunchFlags& flags);

// -x as job.json keeps it: the value of a secret is left out, so that `resume` takes it from the
// shell it is called in.
std::vector<std::string> StoredExports(const std::vector<std::string>& words);

}  // namespace ds::cli
