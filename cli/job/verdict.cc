#include "cli/job/verdict.h"

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
    case Cause::kUserStop:
      return "user_stop";
    case Cause::kInternal:
      return "internal";
  }
  return "";
}

nlohmann::ordered_json ToJson(const Verdict& verdict) {
  nlohmann::ordered_json json;
  json["cause"] = CauseName(verdict.cause);
  json["rank"] =
      verdict.rank < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(verdict.rank);
  json["host"] = verdict.host;
  json["exit_code"] = verdict.exit_code;
  json["signal"] = verdict.signal;
  json["generation"] = verdict.generation;
  json["step"] = verdict.step.has_value() ? nlohmann::ordered_json(*verdict.step)
                                          : nlohmann::ordered_json(nullptr);
  json["message"] = verdict.message;
  json["proof"] = verdict.proof;
  json["last_lines"] = verdict.last_lines;
  json["hint"] = verdict.hint;
  return json;
}

}  // namespace ds::cli
