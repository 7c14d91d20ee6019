#pragma once

// RankCommand: what a rank is executed with. It is made of a LaunchRequest, byte for byte; no
// shell, no quoting, nothing interpreted but two agreed texts:
//   argv[0] == ""          this host's dsrank
//   v1::kJobDirectory      inside an argv element: the folder that holds the request's files
//
// Pure functions, except that FindProgram looks at the file system.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/ranks/rank_child.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

struct RankCommand {
  std::uint32_t rank = 0;                // names it in errors
  std::string executable;                // for execve, seen from working_directory
  std::vector<std::string> argv;         // bytes without NUL
  std::vector<std::string> environment;  // "NAME=value"
  std::string working_directory;         // "" = the daemon's
  std::vector<std::uint32_t> cores;      // empty = not bound
  ProcessSettings settings;
  std::vector<std::uint32_t> memory_nodes;
  std::vector<RankLimit> limits;
  std::string error_file;    // where a Python program tells of its exception; "" = nowhere
  bool takes_input = false;  // through TakeStdin(), else it reads /dev/null
};

// The folders in which programs are looked for when PATH is not set.
inline constexpr std::string_view kDefaultSearchPath = "/usr/local/bin:/usr/bin:/bin";

// The contribution of this host to a rank's command.
struct HostContext {
  std::vector<std::string> environment;  // the daemon's own, "NAME=value"
  std::filesystem::path dsrank;          // empty when this host has none
  std::string job_directory;             // for v1::kJobDirectory and error files; "" = none
  // The daemon's own limit of its user's processes.
  rlimit64 processes{RLIM64_INFINITY, RLIM64_INFINITY};
};

// The command of `request.ranks(index)`. kInvalidArgument for what execve could not carry (NUL
// bytes, an empty argv, a variable name that is empty or holds '='), kNotFound when there is no
// such program.
StatusOr<RankCommand> MakeRankCommand(const v1::LaunchRequest& request, int index,
                                      const HostContext& host);

// Finds `program` as execve would: itself when it holds a slash, else the first executable of that
// name in `search_path` (colon-separated, empty entries mean the working directory, as in execvp).
// The result is seen from `working_directory`. kNotFound with what to do, kPermissionDenied when it
// is there but may not be executed.
StatusOr<std::string> FindProgram(const std::string& program, std::string_view search_path,
                                  const std::filesystem::path& working_directory);

}  // namespace ds::daemon
