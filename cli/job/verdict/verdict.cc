#include "cli/job/verdict/verdict.h"

#include <nlohmann/json.hpp>

namespace ds::cli {

std::string_view CauseName(Cause cause) {
  switch (cause) {
    case Cause::kExitCode:
      return "exit_code";
    case Cause::kSignal:
      return "signal";
    case Cause::kOutOfMemory:
      return "out_of_memory";
    case Cause::kSharedMemoryFull:
      return "shared_memory_full";
    case Cause::kException:
      return "exception";
    case Cause::kRankError:
      return "rank_error";
    case Cause::kConfig:
      return "config";
    case Cause::kCheckpoint:
      return "checkpoint";
    case Cause::kPreflight:
      return "preflight";
    case Cause::kLaunch:
      return "launch";
    case Cause::kHostLost:
      return "host_lost";
    case Cause::kDaemonLost:
      return "daemon_lost";
    case Cause::kStall:
      return "stall";
    case Cause::kNetwork:
      return "network";
    case Cause::kSuspended:
      return "suspended";
    case Cause::kUserStop:
      return "user_stop";
    case Cause::kInternal:
      return "internal";
  }
  return "";
}

namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json ToJson(const ExitEvidence& evidence) {
  return {{"max_rss_bytes", evidence.max_rss_bytes},
          {"host_memory_bytes", evidence.host_memory_bytes},
          {"oom_kills", evidence.oom_kills},
          {"memory_limit_bytes", evidence.memory_limit_bytes},
          {"memory_peak_bytes", evidence.memory_peak_bytes},
          {"kernel_log", evidence.kernel_log},
          {"shared_memory_bytes", OrNull(evidence.shared_memory_bytes)},
          {"shared_memory_free_bytes", OrNull(evidence.shared_memory_free_bytes)}};
}

}  // namespace

nlohmann::ordered_json ToJson(const Verdict& verdict) {
  Json json;
  json["cause"] = CauseName(verdict.cause);
  json["rank"] = verdict.rank < 0 ? Json(nullptr) : Json(verdict.rank);
  json["host"] = verdict.host;
  json["exit_code"] = verdict.exit_code;
  json["signal"] = verdict.signal;
  json["generation"] = verdict.generation;
  json["step"] = OrNull(verdict.step);
  json["message"] = verdict.message;
  json["proof"] = verdict.proof;
  json["last_lines"] = verdict.last_lines;
  json["hint"] = verdict.hint;
  json["pid"] = verdict.pid == 0 ? Json(nullptr) : Json(verdict.pid);
  json["evidence"] = verdict.evidence.has_value() ? ToJson(*verdict.evidence) : Json(nullptr);
  return json;
}

}  // namespace ds::cli
