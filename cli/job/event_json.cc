#include "cli/job/event_json.h"

#include <nlohmann/json.hpp>

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

void AddExit(const v1::RankExited& exit, Json* json) {
  (*json)["rank"] = exit.rank();
  (*json)["pid"] = exit.pid();
  (*json)["exit_code"] = exit.exit_code();
  (*json)["signal"] = exit.signal();
  (*json)["core_dumped"] = exit.core_dumped();
  (*json)["max_rss_bytes"] = exit.max_rss_bytes();
  (*json)["stopping"] = exit.stopping();
  (*json)["oom_killed"] = exit.oom_killed();
}

bool AddReport(const v1::RankReport& report, Json* json) {
  if (report.kind() == "beacon" || report.kind() == "step") return false;
  (*json)["rank"] = report.rank();
  (*json)["kind"] = report.kind();
  Json body = Json::parse(report.body(), nullptr, /*allow_exceptions=*/false);
  (*json)["body"] = body.is_discarded() ? Json(report.body()) : std::move(body);
  return true;
}

}  // namespace

std::optional<Json> ToJson(const HostEvent& event) {
  Json json = {{"unix_nanos", event.event.unix_nanos()},
               {"host", event.host},
               {"generation", event.generation},
               {"sequence", event.event.sequence()}};
  switch (event.event.what_case()) {
    case v1::Event::kRankStarted:
      json["event"] = "rank_started";
      json["rank"] = event.event.rank_started().rank();
      json["pid"] = event.event.rank_started().pid();
      return json;
    case v1::Event::kRankExited:
      json["event"] = "rank_exited";
      AddExit(event.event.rank_exited(), &json);
      return json;
    case v1::Event::kRankReport:
      json["event"] = "rank_report";
      if (!AddReport(event.event.rank_report(), &json)) return std::nullopt;
      return json;
    case v1::Event::kJobEnded:
      json["event"] = "host_ended";
      return json;
    default:
      return std::nullopt;
  }
}

}  // namespace ds::cli
