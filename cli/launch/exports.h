#pragma once

// Exports: what ranks get over the environment of their host.
//
//     -x NAME=VALUE      as written
//     -x NAME            the value it has in the shell that started dsrun; unset is an error
//     -x 'NCCL_*'        every variable of that shell with such a name (shell pattern)
//     --env_file FILE    see env_file.h
//
// Later ones win: the prefixes that remote hosts are given anyway, env files in their order, then
// -x in its order.
//
// Pure but for ReadShellEnvironment, which reads this process's, and GatherExports, which reads
// files.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/launch/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

// This process's environment.
Environment ReadShellEnvironment();

// Returns null where there is none. Of a name that a shell has twice the first counts, as for
// getenv; exports have every name once.
const std::string* FindVariable(const Environment& environment, std::string_view name);

// Looks up what a rank on this host finds under `name`: exported, else inherited from the shell.
const std::string* FindRankVariable(const Environment& exports, const Environment& shell,
                                    std::string_view name);

struct ExportRequest {
  std::vector<Environment> files;  // in the order in which they are applied
  std::vector<std::string> words;  // of -x
};

// Every name once, in the order of first appearance. An error names what -x could not do.
StatusOr<Environment> ResolveExports(const ExportRequest& request, const Environment& shell);

// Picks what a host that does not inherit this shell's environment is given of it: the names that
// DeepSpeed exports (NCCL*, PYTHON*, UCX*, MLFLOW*, ... by prefix), PYTHONPATH with
// `working_directory` in front. In an AISC job (AISC_JOB_NAME) the network devices of this host
// stay here.
Environment PickRemoteExports(const Environment& shell, std::string_view working_directory);

struct GatheredExports {
  Environment environment;
  // They name env files that nobody named, values with a $ that stays, variables of a file that
  // dsrun sets itself.
  std::vector<std::string> notices;
  std::string path_source;  // the env file or -x that PATH is from; "" = it is the host's own
};

// GatherExports lays over one another what the env files hold and -x asks for: .deepspeed_env of
// the home folder, then of the working directory (DS_ENV_FILE names another), then --env_file, then
// -x. Refuses variables that contradict a flag.
StatusOr<GatheredExports> GatherExports(const LaunchFlags& flags, const Environment& shell,
                                        const std::filesystem::path& working_directory);

// The rank gets this over its host's own environment, with secrets redacted. A variable that dsrun
// sets when the job starts (MASTER_PORT, DSRUN_JOB_ID) is left out while `job` does not know its
// value.
Environment ShowRankEnvironment(const WorldPlan& world, const PlannedRank& rank,
                                JobEnvironment job);

// `over` laid over `base`; every name once.
Environment Overlay(Environment base, const Environment& over);

}  // namespace ds::cli
