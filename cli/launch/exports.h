#pragma once

// Exports: environment variables that ranks get in addition to the environment of their host.
//
//     -x NAME=VALUE      as written
//     -x NAME            the value it has in the shell that started dsrun; unset is an error
//     -x 'NCCL_*'        every variable of that shell with such a name (shell pattern)
//     --env_file FILE    see env_file.h
//
// Later sources override earlier ones: the prefixes that remote hosts always get, env files in
// their order, then -x in its order.
//
// Pure except ReadShellEnvironment, which reads this process's environment, and GatherExports,
// which reads files.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/launch/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Returns this process's environment.
Environment ReadShellEnvironment();

// Returns null if the variable is missing. If a shell has a name twice, the first entry counts, as
// in getenv. Exports contain every name once.
const std::string* FindVariable(const Environment& environment, std::string_view name);

// Looks up the value that a rank on this host gets for `name`: exported, else inherited from the
// shell.
const std::string* FindRankVariable(const Environment& exports, const Environment& shell,
                                    std::string_view name);

struct ExportRequest {
  std::vector<Environment> files;  // in the order of application
  std::vector<std::string> words;  // arguments of -x
};

// Returns every name once, in the order of first appearance. An error names the -x that failed.
StatusOr<Environment> ResolveExports(const ExportRequest& request, const Environment& shell);

// Picks the variables of this shell for a host that does not inherit its environment: the names
// that DeepSpeed exports (by prefix: NCCL*, PYTHON*, UCX*, MLFLOW*, ...), and PYTHONPATH with
// `working_directory` in front. In an AISC job (AISC_JOB_NAME) the variables for this host's
// network devices are not exported.
Environment PickRemoteExports(const Environment& shell, std::string_view working_directory);

struct GatheredExports {
  Environment environment;
  // Notices for env files found by default, for values with an unexpanded $, and for variables of a
  // file that dsrun sets itself.
  std::vector<std::string> notices;
  std::string path_source;  // the env file or -x that sets PATH; "" = the host's own PATH
};

// Merges env files and -x in this order: .deepspeed_env of the home folder, then of the working
// directory (DS_ENV_FILE sets another name), then --env_file, then -x. Refuses variables that
// contradict a flag.
StatusOr<GatheredExports> GatherExports(const LaunchFlags& flags, const Environment& shell,
                                        const std::filesystem::path& working_directory);

// Returns the variables that `rank` gets in addition to its host's environment, with secrets
// redacted. Leaves out a variable that dsrun sets when the job starts (MASTER_PORT, DSRUN_JOB_ID)
// if `job` does not have its value yet.
Environment ShowRankEnvironment(const WorldPlan& world, const PlannedRank& rank,
                                JobEnvironment job);

// Returns `base` overridden by `over`; every name once.
Environment Overlay(Environment base, const Environment& over);

}  // namespace ds::cli
