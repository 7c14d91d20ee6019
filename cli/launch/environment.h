#pragma once

// The environment variables of ranks: those of a shell, of env files and of -x, which ranks get in
// addition to the environment of their host, and those that dsrun sets.
//
//     -x NAME=VALUE      as written
//     -x NAME            the value it has in the shell that started dsrun; unset is an error
//     -x 'NCCL_*'        every variable of that shell with such a name (shell pattern)
//     --env_file FILE    see ParseEnvFile
//
// Later sources override earlier ones: the prefixes that remote hosts always get, env files in
// their order, then -x in its order.
//
// Pure and thread-safe, except ReadShellEnvironment, which reads this process's environment, and
// ReadEnvFile, FindUsualEnvFiles and GatherExports, which read files.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/launch/launch_plan.h"
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

// Returns `base` overridden by `over`; every name once.
Environment Overlay(Environment base, const Environment& over);

// Parses an env file: environment variables for every rank, one NAME=VALUE a line.
//
//     # comment
//     NCCL_DEBUG=INFO
//     export PATHS=/a:/b        # `export` is allowed, and so is a comment after a blank
//     GREETING="two words\n"    # \" \\ \n \t \$ inside double quotes
//     LITERAL='$HOME "as it is"'
//
// Nothing is expanded: $HOME is five bytes. Blanks around name and value, blank lines, CRLF and a
// UTF-8 byte-order mark are allowed. An empty value is a value. The last line of a name wins. A
// value without quotes may contain blanks, but not after `export`, where a shell would read several
// words. Any other line is an error that names file and line.
//
// `file_name` is for messages. Messages never contain values, because they may be secret.
StatusOr<Environment> ParseEnvFile(std::string_view text, std::string_view file_name);

// Returns kNotFound if the file does not exist: an explicitly named file is required.
StatusOr<Environment> ReadEnvFile(const std::filesystem::path& path);

// Lists the default env files that DeepSpeed reads, in the order of application: `name`
// (DS_ENV_FILE; default: .deepspeed_env) in `home`, then in the working directory. A file found
// twice is listed once. A file that cannot be looked at is an error and not absent, unless this
// user may not enter its folder.
StatusOr<std::vector<std::filesystem::path>> FindUsualEnvFiles(
    const std::optional<std::string>& name, const std::filesystem::path& home,
    const std::filesystem::path& working_directory);

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

// The words of -x as stored in job.json. They are names and patterns, never
// values. When the user resumes the job, he gives those values again; values of bare names come
// from his shell, as at the first start.
struct StoredExports {
  std::vector<std::string> words;  // names and patterns
  // The names that had values. Unset if an older dsrun wrote the file without this list. Such a
  // file either has kRedacted after the '=' of a word, or only the names.
  std::optional<std::vector<std::string>> had_values;
};

// Splits the words of -x into names and values, and drops the values.
StoredExports StoreExports(const std::vector<std::string>& words);

struct RenewedExports {
  std::vector<std::string> words;       // the stored words that are not given again
  std::vector<std::string> from_shell;  // the bare names among them; values come from this shell
  bool may_have_had_values = false;     // job.json does not say whether `from_shell` had values
};

// Chooses the words of `stored` that a resumed job keeps if the command line has the words `given`.
// The error names every variable that had a value of its own and is not given again, or every bare
// name that is not set in this shell.
StatusOr<RenewedExports> RenewExports(const StoredExports& stored,
                                      const std::vector<std::string>& given,
                                      const Environment& shell);

// The values of the variables that torchrun, DeepSpeed and MPI programs read.
struct JobEnvironment {
  std::string job_id;  // "" = not known yet: DSRUN_JOB_ID is left out
  int generation = 0;  // 0 at first, then 1 more per restart
  int max_restarts = 0;
  std::string run_id;  // "" = the job's name
  std::string role = "default";
  std::string master_addr;
  int master_port = 0;            // 0 = not known yet: MASTER_PORT is left out
  std::string interface;          // "" = DSRUN_INTERFACE as exported
  double lease_seconds = 0;       // for every other host; 0 = no lease
  double collective_timeout = 0;  // 0 = DSRUN_COLLECTIVE_TIMEOUT as exported
  bool one_device_per_rank = false;
  // OMP_NUM_THREADS is the user's own value if set; else the number of cores bound to the rank;
  // else threads_per_rank, unless that is 0 (the host's cores are not known).
  bool user_set_threads = false;
  int threads_per_rank = 0;
};

// Fills in the fields that flags determine; the others keep their defaults.
JobEnvironment MakeJobEnvironment(const LaunchFlags& flags);

// Returns the variables to add to the host's own environment, in a fixed order, every name once.
Environment MakeRankEnvironment(const WorldPlan& plan, const PlannedRank& rank,
                                const JobEnvironment& job);

// True for a variable that dsrun sets for every rank, overriding any exported value.
bool IsOwnVariable(std::string_view name);

// Returns the default rendezvous address of `plan`: this host's loopback if one host runs all
// ranks, else the first host's name without "user@".
std::string ChooseMasterAddress(const WorldPlan& plan);

// Returns the variables that `rank` gets in addition to its host's environment, without the values
// of those with secret names. Leaves out a variable that dsrun sets when the job starts
// (MASTER_PORT, DSRUN_JOB_ID) if `job` does not have its value yet.
Environment ShowRankEnvironment(const WorldPlan& world, const PlannedRank& rank,
                                JobEnvironment job);

}  // namespace ds::cli
