#include "cli/job/job_plan.h"

#include <unistd.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <utility>

#include "cli/flags/launch_flags_json.h"
#include "cli/launch/environment.h"
#include "cli/launch/scheduler.h"
#include "cli/launch/secrets.h"
#include "runtime/base/clock.h"

namespace ds::cli {
namespace {

// With its time and its random part an id is at most 61 characters, and a label of a DNS name may
// have 63: daemons' certificates name the job.
constexpr std::size_t kLongestName = 28;

std::string MakeFileName(std::string_view name) {
  name.remove_prefix(name.find_last_of('/') + 1);  // npos + 1 is 0
  std::string readable;
  for (const char c : name.substr(0, kLongestName)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
    readable += plain ? c : '-';
  }
  return readable.empty() || readable[0] == '.' ? "job" + readable : readable;
}

// 64 bits, so that jobs that start in the same second in the same folder have different names.
std::string MakeRandomPart() {
  std::random_device random;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x", random(), random());
  return text.data();
}

std::string MakeJobId(std::string_view name) {
  const std::time_t seconds = Clock::System().UnixNanos() / 1'000'000'000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%Y%m%d-%H%M%S", &local);
  return MakeFileName(name) + "-" + time.data() + "-" + MakeRandomPart();
}

// The ranks of a host run as its hostfile entry says, else as --workdir says, else here.
std::string FindWorkingDirectory(const LaunchFlags& flags, const HostEntry& entry,
                                 const Shell& shell) {
  const auto own = entry.keys.find("workdir");
  if (own != entry.keys.end()) return own->second;
  if (flags.workdir.empty()) return shell.working_directory.string();
  return (shell.working_directory / flags.workdir).lexically_normal().string();
}

using Json = nlohmann::ordered_json;

// By name only, like those of -x: nobody has looked through them for secrets.
Json DescribeExports(const Environment& exports) {
  Json json = Json::array();
  for (const auto& [name, value] : exports) json.push_back(name);
  return json;
}

// Adds words under a name, and beside it, under "redacted", which of them hide something. In the
// file bytes that are no UTF-8 become U+FFFD.
void AddWords(const std::string& name, const RedactedWords& words, Json* job) {
  (*job)[name] = words.words;
  (*job)["redacted"][name] = words.indices;
}

}  // namespace

const JobHost& JobPlan::host(int number) const {
  const auto index = static_cast<std::size_t>(number);
  return index < world.hosts.size() ? world.hosts[index] : spares[index - world.hosts.size()];
}

std::vector<int> JobPlan::CountSpareSlots() const {
  std::vector<int> counts;
  for (const JobHost& spare : spares) counts.push_back(spare.rank_count());
  return counts;
}

void CompleteHost(const LaunchFlags& flags, const Environment& exports, const Shell& shell,
                  JobHost* host) {
  host->working_directory = FindWorkingDirectory(flags, host->entry, shell);
  host->exports =
      host->remote ? Overlay(PickRemoteExports(shell.environment, host->working_directory), exports)
                   : exports;
  constexpr std::string_view kThreads = "OMP_NUM_THREADS";
  const std::string* const threads =
      host->remote ? FindVariable(host->exports, kThreads)
                   : FindRankVariable(host->exports, shell.environment, kThreads);
  host->sets_threads = threads != nullptr && !threads->empty();
}

JobPlan PlanJob(JobRequest request, JobPurpose purpose) {
  JobPlan plan{.job_id = std::move(request.job_id),
               .run_directory = std::move(request.run_directory),
               .command_line = std::move(request.command_line),
               .flags = std::move(request.flags),
               .world = std::move(request.launch.world),
               .spares = std::move(request.launch.spares),
               .shown = std::move(request.launch.shown),
               .exports = std::move(request.exports),
               .path_source = std::move(request.path_source),
               .notices = std::move(request.notices),
               .purpose = std::move(purpose)};
  plan.master_addr =
      plan.flags.master_addr.empty() ? ChooseMasterAddress(plan.world) : plan.flags.master_addr;
  for (JobHost& host : plan.world.hosts)
    CompleteHost(plan.flags, plan.exports, request.shell, &host);
  for (JobHost& spare : plan.spares) CompleteHost(plan.flags, plan.exports, request.shell, &spare);
  return plan;
}

StatusOr<JobRequest> GatherJobRequest(std::string_view name, const LaunchFlags& flags,
                                      const std::vector<std::string>& command_line) {
  JobRequest request{.job_id = MakeJobId(name), .flags = flags};
  DS_ASSIGN_OR_RETURN(request.command_line, RedactCommandLine(command_line, flags.export_values));
  DS_ASSIGN_OR_RETURN(request.launch, PlanFromThisHost(flags));
  request.shell = {.environment = ReadShellEnvironment(),
                   .working_directory = std::filesystem::current_path()};
  DS_ASSIGN_OR_RETURN(GatheredExports exports, GatherExports(flags, request.shell.environment,
                                                             request.shell.working_directory));
  request.exports = std::move(exports.environment);
  request.path_source = std::move(exports.path_source);
  request.notices = DescribeAllocation(request.shell.environment, flags.hostfile.has_value());
  request.notices.insert(request.notices.end(), exports.notices.begin(), exports.notices.end());
  const std::filesystem::path run =
      flags.run_dir.empty() ? "runs/" + request.job_id : flags.run_dir;
  request.run_directory = (request.shell.working_directory / run).lexically_normal();
  return request;
}

LogLimit LimitLogsOf(const LaunchFlags& flags) {
  LogLimit limit{.max_bytes = flags.log_max_bytes};
  limit.max_files = flags.log_max_files.value_or(limit.max_files);
  return limit;
}

StatusOr<std::unique_ptr<RunDirectory>> CreateRunDirectory(const LaunchFlags& flags,
                                                           std::string* job_id,
                                                           std::filesystem::path* path) {
  StatusOr<std::unique_ptr<RunDirectory>> run =
      flags.run_dir.empty() ? RunDirectory::CreateNew(*path) : RunDirectory::Create(*path);
  // Another job's folder is never taken for this job's.
  while (flags.run_dir.empty() && run.status().code() == StatusCode::kAlreadyExists) {
    *job_id = job_id->substr(0, job_id->rfind('-') + 1) + MakeRandomPart();
    path->replace_filename(*job_id);
    run = RunDirectory::CreateNew(*path);
  }
  if (run.ok()) (*run)->LimitLogs(LimitLogsOf(flags));
  return run;
}

Json DescribeJob(std::string_view kind, const JobPlan& plan, const std::vector<std::string>& argv) {
  LaunchFlags flags = plan.flags;
  if (flags.hostfile.has_value())
    flags.hostfile = std::filesystem::absolute(*flags.hostfile).string();
  const StoredExports exports = StoreExports(flags.exports);
  flags.exports = exports.words;
  for (std::string& file : flags.env_files) file = std::filesystem::absolute(file).string();
  if (!flags.workdir.empty()) flags.workdir = std::filesystem::absolute(flags.workdir).string();
  flags.run_dir.clear();  // the folder that holds job.json, wherever it has been moved to
  Json hosts = Json::array();
  for (const JobHost& host : plan.world.hosts) {
    hosts.push_back({{"host", host.host}, {"slots", host.slots}});
  }
  Json job = {{"job", plan.job_id},
              {"kind", kind},
              {"dsrun_version", DS_VERSION},
              {"created_unix_nanos", Clock::System().UnixNanos()},
              {"pid", ::getpid()}};
  AddWords("command_line", plan.command_line, &job);
  job.update({{"working_directory", std::filesystem::current_path().string()},
              {"launch", ToJson(flags)},
              {"exports", DescribeExports(plan.exports)},
              {"world_size", plan.world.world_size()},
              {"hosts", hosts}});
  job["redacted"]["exports"] = *exports.had_values;
  if (!argv.empty()) AddWords("argv", HideSecrets(argv), &job);
  return job;
}

}  // namespace ds::cli
