#include "cli/flags/launch_flags_json.h"

#include <exception>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// Calls `visit(name, member)` for every flag. Both directions use this one list.
template <typename Flags, typename Visit>
void VisitFlags(Flags& flags, const Visit& visit) {
  visit("hostfile", flags.hostfile);
  visit("include", flags.include);
  visit("exclude", flags.exclude);
  visit("num_nodes", flags.num_nodes);
  visit("num_gpus", flags.num_gpus);
  visit("total_ranks", flags.total_ranks);
  visit("share_machine", flags.share_machine);
  visit("run_id", flags.run_id);
  visit("role", flags.role);
  visit("master_addr", flags.master_addr);
  visit("master_port", flags.master_port);
  visit("interface", flags.interface);
  visit("ssh_port", flags.ssh_port);
  visit("launcher", flags.transport);
  visit("ssh_timeout", flags.ssh_timeout);
  visit("lease_seconds", flags.lease_seconds);
  visit("lease_decides", flags.lease_decides);
  visit("start_timeout", flags.start_timeout);
  visit("collective_timeout", flags.collective_timeout);
  visit("device", flags.device);
  visit("one_device_per_rank", flags.one_device_per_rank);
  visit("bind_cores_to_rank", flags.bind_cores_to_rank);
  visit("bind_core_list", flags.bind_core_list);
  visit("python", flags.python);
  visit("engine", flags.engine);
  visit("module", flags.module);
  visit("no_python", flags.no_python);
  visit("pass_local_rank", flags.pass_local_rank);
  visit("exports", flags.exports);
  visit("env_files", flags.env_files);
  visit("workdir", flags.workdir);
  visit("umask", flags.umask);
  visit("ulimits", flags.ulimits);
  visit("run_dir", flags.run_dir);
  visit("max_restarts", flags.max_restarts);
  visit("restart_from_scratch", flags.restart_from_scratch);
  visit("grace_seconds", flags.grace_seconds);
  visit("quiet", flags.quiet);
  visit("log_ranks", flags.log_ranks);
  visit("errors_only", flags.errors_only);
  visit("timestamps", flags.timestamps);
  visit("log_max_bytes", flags.log_max_bytes);
  visit("log_max_files", flags.log_max_files);
  visit("exit_codes", flags.exit_codes);
  visit("log_level", flags.log_level);
}

template <typename T>
Json Write(const T& value) {
  return value;
}
Json Write(const Device& device) { return DeviceName(device); }
Json Write(const Engine& engine) { return EngineName(engine); }
Json Write(const ExitCodes& codes) { return codes == ExitCodes::kDistinct ? "distinct" : "shell"; }
Json Write(const SshTransport& transport) {
  return transport == SshTransport::kSshClient ? "ssh-client" : "libssh";
}
template <typename T>
Json Write(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

// Sets `value` to the known value that is written as `json`.
template <typename T>
void ReadOneOf(const Json& json, std::initializer_list<T> known, T* value) {
  for (const T each : known) {
    if (Write(each) == json) {
      *value = each;
      return;
    }
  }
  throw std::invalid_argument(json.dump() + " is not a value that this dsrun supports");
}

template <typename T>
void Read(const Json& json, T* value) {
  json.get_to(*value);
}
void Read(const Json& json, Device* device) {
  ReadOneOf(json, {Device::kCpu, Device::kCuda, Device::kAuto}, device);
}
void Read(const Json& json, Engine* engine) {
  ReadOneOf(json, {Engine::kOwn, Engine::kNative}, engine);
}
void Read(const Json& json, ExitCodes* codes) {
  ReadOneOf(json, {ExitCodes::kDistinct, ExitCodes::kShell}, codes);
}
void Read(const Json& json, SshTransport* transport) {
  ReadOneOf(json, {SshTransport::kSshClient, SshTransport::kLibssh}, transport);
}
template <typename T>
void Read(const Json& json, std::optional<T>* value) {
  if (json.is_null()) {
    value->reset();
  } else {
    *value = json.get<T>();
  }
}

}  // namespace

Json ToJson(const LaunchFlags& flags) {
  Json json = Json::object();
  VisitFlags(flags, [&](const char* name, const auto& value) { json[name] = Write(value); });
  return json;
}

StatusOr<LaunchFlags> ReadLaunchFlags(const Json& json) {
  LaunchFlags flags;
  Json unknown = json;
  std::string at;
  try {
    VisitFlags(flags, [&](const char* name, auto& value) {
      if (!json.contains(name)) return;
      at = name;
      Read(json.at(name), &value);
      unknown.erase(name);
    });
  } catch (const Json::exception&) {
    return InvalidArgumentError("the launch flag '" + at +
                                "' in it is damaged: its value is of another type");
  } catch (const std::exception& error) {
    return InvalidArgumentError("the launch flag '" + at + "' in it is damaged: " + error.what());
  }
  if (unknown.empty()) return flags;
  std::string names;
  for (const auto& [name, value] : unknown.items()) names += (names.empty() ? "" : ", ") + name;
  return InvalidArgumentError("its launch flags have entries that this dsrun does not support: " +
                              names);
}

}  // namespace ds::cli
