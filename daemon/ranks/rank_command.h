#pragma once

// RankCommand holds the arguments of a rank's execve. It is built from a LaunchRequest byte for
// byte, without a shell and without quoting. Only two texts are interpreted:
//   argv[0] == ""          this host's dsrank
//   v1::kJobDirectory      inside an argv element: the folder that holds the request's files
//
// Pure functions, except that they look for the program (daemon/inspect/find_program.h).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/ranks/rank_child.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

struct RankCommand {
  std::uint32_t rank = 0;                // for error messages
  std::string executable;                // for execve, relative to working_directory
  std::string real_executable;           // the same file, absolute and without links
  std::vector<std::string> argv;         // bytes without NUL
  std::vector<std::string> environment;  // "NAME=value"
  std::string working_directory;         // "" = the daemon's
  std::vector<std::uint32_t> cores;      // empty = not bound
  ProcessSettings settings;
  std::vector<std::uint32_t> memory_nodes;
  std::vector<RankLimit> limits;
  std::string error_file;    // a Python program writes its exception here; "" = nowhere
  bool takes_input = false;  // stdin is a pipe (TakeStdin()), else /dev/null
};

// The settings that this host adds to a rank's command.
struct HostContext {
  std::vector<std::string> environment;  // the daemon's own, "NAME=value"
  std::filesystem::path dsrank;          // empty if this host has none
  std::string job_directory;             // for v1::kJobDirectory and error files; "" = none
  // The daemon's own limit on the number of its user's processes.
  rlimit64 processes{RLIM64_INFINITY, RLIM64_INFINITY};
  // The limit of open files that this host's user has set. The daemon has raised its own.
  rlimit64 open_files{RLIM64_INFINITY, RLIM64_INFINITY};
};

// Returns the command of `request.ranks(index)`. Returns kInvalidArgument for values that execve
// cannot carry (NUL bytes, an empty argv, a variable name that is empty or contains '='), and
// kNotFound if there is no such program.
StatusOr<RankCommand> MakeRankCommand(const v1::LaunchRequest& request, int index,
                                      const HostContext& host);

// Returns the commands of all ranks of the request. Errors name the rank. `tell` receives the step
// that may wait for a file system: "looking for program python3 in /work on nfs4".
StatusOr<std::vector<RankCommand>> MakeRankCommands(
    const v1::LaunchRequest& request, const HostContext& host,
    const std::function<void(const std::string&)>& tell);

}  // namespace ds::daemon
