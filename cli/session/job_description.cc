#include "cli/session/job_description.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/flags/launch_flags_json.h"
#include "cli/plan/secrets.h"
#include "cli/plan/stored_exports.h"
#include "runtime/base/clock.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// By name only, like those of -x: nobody has looked through them for secrets.
Json DescribeExports(const Environment& exports) {
  Json json = Json::array();
  for (const auto& [name, value] : exports) json.push_back(name);
  return json;
}

}  // namespace

fs::path ChooseRunDirectory(const LaunchFlags& flags, const std::string& job_id) {
  return fs::absolute(flags.run_dir.empty() ? fs::path("runs") / job_id : fs::path(flags.run_dir))
      .lexically_normal();
}

Json DescribeWords(const std::vector<std::string>& words) { return RedactWords(words); }

Json DescribeJob(std::string_view kind, const JobPlan& plan,
                 const std::vector<std::string>& command_line) {
  LaunchFlags flags = plan.flags;
  if (flags.hostfile.has_value()) flags.hostfile = fs::absolute(*flags.hostfile).string();
  flags.exports = StoreExports(flags.exports);
  for (std::string& file : flags.env_files) file = fs::absolute(file).string();
  if (!flags.workdir.empty()) flags.workdir = fs::absolute(flags.workdir).string();
  flags.run_dir.clear();  // the folder that holds job.json, wherever it has been moved to
  Json hosts = Json::array();
  for (const JobHost& host : plan.world.hosts) {
    hosts.push_back({{"host", host.host}, {"slots", host.slots}});
  }
  return {{"job", plan.job_id},
          {"kind", kind},
          {"dsrun_version", DS_VERSION},
          {"created_unix_nanos", Clock::System().UnixNanos()},
          {"pid", ::getpid()},
          {"command_line", DescribeWords(HideValues(command_line, plan.flags.export_values))},
          {"working_directory", fs::current_path().string()},
          {"launch", ToJson(flags)},
          {"exports", DescribeExports(plan.exports)},
          {"world_size", plan.world.world_size()},
          {"hosts", hosts}};
}

}  // namespace ds::cli
