#include "daemon/ranks/rank_command.h"

#include <linux/mempolicy.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "daemon/inspect/find_program.h"
#include "proto/job_directory.h"
#include "runtime/base/rank_link.h"
#include "runtime/process/resource_limits.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

using Variables = std::map<std::string, std::string>;
using ProtoVariables = google::protobuf::RepeatedPtrField<v1::EnvironmentVariable>;

Status AddVariables(const ProtoVariables& from, Variables* to) {
  for (const v1::EnvironmentVariable& variable : from) {
    const std::string& name = variable.name();
    if (name.empty() || name.find('=') != std::string::npos ||
        name.find('\0') != std::string::npos || variable.value().find('\0') != std::string::npos) {
      return InvalidArgumentError("environment variable '" + name +
                                  "': a name may not be empty or hold '=', and neither name nor "
                                  "value may hold a NUL byte");
    }
    (*to)[name] = variable.value();
  }
  return OkStatus();
}

Variables ParseVariables(const std::vector<std::string>& environment) {
  Variables variables;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

std::string PutInJobDirectory(std::string text, const std::string& folder) {
  if (folder.empty()) return text;  // a job without files: the text is the user's
  for (std::size_t at = text.find(v1::kJobDirectory); at != std::string::npos;
       at = text.find(v1::kJobDirectory, at + folder.size())) {
    text.replace(at, v1::kJobDirectory.size(), folder);
  }
  return text;
}

Status AddLimits(const v1::LaunchRequest& request, RankCommand* command) {
  for (const v1::RankLimit& limit : request.limits()) {
    const std::optional<int> resource = FindResourceNumber(limit.name());
    if (!resource || limit.soft() > limit.hard()) {
      return InvalidArgumentError("limit '" + limit.name() +
                                  "': no such limit, or its soft value is above the hard one");
    }
    static_assert(kUnlimited == RLIM64_INFINITY);
    command->limits.push_back({*resource, {limit.soft(), limit.hard()}});
  }
  return OkStatus();
}

// True if the user has set this limit.
bool IsSet(int resource, const RankCommand& command) {
  return std::any_of(command.limits.begin(), command.limits.end(),
                     [=](const RankLimit& limit) { return limit.resource == resource; });
}

// Undoes for a rank what the daemon has done for itself.
void RestoreOpenFiles(const HostContext& host, RankCommand* command) {
  if (IsSet(RLIMIT_NOFILE, *command) || host.open_files.rlim_cur == RLIM64_INFINITY) return;
  command->limits.push_back({RLIMIT_NOFILE, host.open_files});
}

// The kernel compares the number of the user's processes with the limit of the process that calls
// fork. So a lower limit for ranks reserves processes for their daemon and for dsrun on this
// machine. gRPC loses work for a thread that it cannot start; then no events of the ranks would
// arrive.
void ReserveForDaemon(const HostContext& host, RankCommand* command) {
  constexpr rlim64_t kReserved = 16;
  constexpr rlim64_t kMostOfLimit = 4;  // at most this part of a low limit
  rlimit64 amounts = host.processes;
  if (IsSet(RLIMIT_NPROC, *command) || amounts.rlim_cur == RLIM64_INFINITY) return;
  amounts.rlim_cur -= std::min(kReserved, amounts.rlim_cur / kMostOfLimit);
  command->limits.push_back({RLIMIT_NPROC, amounts});
}

int ToMemoryMode(v1::MemoryPolicy::Kind kind) {
  switch (kind) {
    case v1::MemoryPolicy::BIND:
      return MPOL_BIND;
    case v1::MemoryPolicy::PREFERRED:
      return MPOL_PREFERRED;
    default:
      return MPOL_DEFAULT;
  }
}

// Returns the rank's own arguments, or the common ones with the rank's own argument among them.
StatusOr<std::vector<std::string>> ListArguments(const v1::LaunchRequest& request,
                                                 const v1::RankSpec& spec) {
  const auto& given = spec.argv().empty() ? request.argv() : spec.argv();
  std::vector<std::string> arguments(given.begin(), given.end());
  const std::size_t position = spec.argv().empty() ? request.own_argument_position() : 0;
  if (position > 0 && position <= arguments.size()) {
    arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(position),
                     spec.own_argument());
  }
  if (arguments.empty()) return InvalidArgumentError("a rank has no program");
  for (const std::string& argument : arguments) {
    if (argument.find('\0') != std::string::npos) {
      return InvalidArgumentError("an argument holds a NUL byte");
    }
  }
  return arguments;
}

std::string ResolveLinks(const fs::path& path) {
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  return error ? path.string() : resolved.string();
}

std::string_view FindSearchPath(const Variables& variables) {
  const auto path = variables.find("PATH");
  return path == variables.end() ? std::string_view(kDefaultSearchPath) : path->second;
}

// Replaces an empty argv[0] by this host's dsrank.
Status AddExecutable(const HostContext& host, std::string_view search_path, RankCommand* command) {
  const fs::path folder(command->working_directory);
  if (command->argv[0].empty()) {
    if (host.dsrank.empty()) return NotFoundError("this host has no dsrank next to its dsrund");
    command->argv[0] = command->executable = host.dsrank.string();
  } else {
    DS_ASSIGN_OR_RETURN(command->executable, FindProgram(command->argv[0], search_path, folder));
  }
  command->real_executable = ResolveLinks(folder / command->executable);
  return OkStatus();
}

}  // namespace

StatusOr<RankCommand> MakeRankCommand(const v1::LaunchRequest& request, int index,
                                      const HostContext& host) {
  const v1::RankSpec& spec = request.ranks(index);
  DS_ASSIGN_OR_RETURN(const std::vector<std::string> arguments, ListArguments(request, spec));
  Variables variables;
  if (request.inherit_environment()) variables = ParseVariables(host.environment);
  DS_RETURN_IF_ERROR(AddVariables(request.environment(), &variables));
  DS_RETURN_IF_ERROR(AddVariables(spec.environment(), &variables));
  variables[kRankLinkVariable] = std::to_string(kRankLinkFd);

  RankCommand command{.rank = spec.rank()};
  if (!arguments[0].empty() && !host.job_directory.empty()) {  // dsrank reports its errors itself
    command.error_file = host.job_directory + "/error-" + std::to_string(spec.rank()) + ".json";
    variables["TORCHELASTIC_ERROR_FILE"] = command.error_file;
  }
  command.working_directory = request.working_directory();
  command.cores.assign(spec.cores().begin(), spec.cores().end());
  command.takes_input = request.forward_input() && spec.rank() == 0;
  if (request.has_umask()) command.settings.umask = request.umask();
  DS_RETURN_IF_ERROR(AddLimits(request, &command));
  ReserveForDaemon(host, &command);
  RestoreOpenFiles(host, &command);
  command.settings.memory_mode = ToMemoryMode(spec.memory_policy().kind());
  command.memory_nodes.assign(spec.memory_policy().nodes().begin(),
                              spec.memory_policy().nodes().end());
  for (const std::string& argument : arguments) {
    // A job without files does not use the folder, so the text is the user's.
    command.argv.push_back(
        request.files().empty() ? argument : PutInJobDirectory(argument, host.job_directory));
  }
  DS_RETURN_IF_ERROR(AddExecutable(host, FindSearchPath(variables), &command));
  for (const auto& [name, value] : variables) command.environment.push_back(name + "=" + value);
  return command;
}

StatusOr<std::vector<RankCommand>> MakeRankCommands(
    const v1::LaunchRequest& request, const HostContext& host,
    const std::function<void(const std::string&)>& tell) {
  std::vector<RankCommand> commands;
  std::unordered_set<std::uint32_t> seen;
  for (int i = 0; i < request.ranks_size(); ++i) {
    const v1::RankSpec& spec = request.ranks(i);
    const std::string name = "rank " + std::to_string(spec.rank());
    if (!seen.insert(spec.rank()).second) {
      return InvalidArgumentError("named twice").WithContext(name);
    }
    const auto& argv = spec.argv().empty() ? request.argv() : spec.argv();
    if (!argv.empty()) {
      const std::string program = argv[0].empty() ? host.dsrank.string() : argv[0];
      tell(name + ": " + DescribeSearch(program, request.working_directory()));
    }
    StatusOr<RankCommand> command = MakeRankCommand(request, i, host);
    if (!command.ok()) return command.status().WithContext(name);
    commands.push_back(std::move(command).value());
  }
  return commands;
}

}  // namespace ds::daemon
