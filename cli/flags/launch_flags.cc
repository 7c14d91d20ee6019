#include "cli/flags/launch_flags.h"

#include "cli/flags/log_filter.h"
#include "cli/flags/process_settings.h"

namespace ds::cli {

std::string_view DeviceName(Device device) {
  switch (device) {
    case Device::kAuto:
      return "auto";
    case Device::kCpu:
      return "cpu";
    case Device::kCuda:
      return "cuda";
  }
  return "";
}

Status CheckLaunchFlags(const LaunchFlags& flags) {
  if (!flags.include.empty() && !flags.exclude.empty()) {
    return InvalidArgumentError("--include and --exclude exclude one another; give one of them");
  }
  if (!flags.bind_core_list.empty() && !flags.bind_cores_to_rank) {
    return InvalidArgumentError("--bind_core_list needs --bind_cores_to_rank");
  }
  if (flags.this_host_only && flags.hostfile.has_value()) {
    return InvalidArgumentError(
        "--standalone and --node_rank 0 mean this host and no other, --hostfile means its hosts; "
        "give one of them");
  }
  if (flags.total_ranks.has_value() && flags.num_gpus.has_value()) {
    return InvalidArgumentError(
        "-n counts the ranks of the whole job, --num_gpus those of each host; give one of them");
  }
  if (flags.module && flags.no_python) {
    return InvalidArgumentError("--module and --no_python exclude one another");
  }
  DS_RETURN_IF_ERROR(LogFilter::Parse(flags.log_ranks).status());
  for (const std::string& word : flags.exports) {
    if (word.empty() || word[0] == '=') {
      return InvalidArgumentError("-x " + word + ": expected NAME=VALUE, NAME or a pattern");
    }
  }
  for (const std::string& word : flags.ulimits) DS_RETURN_IF_ERROR(ParseLimit(word).status());
  return OkStatus();
}

}  // namespace ds::cli
