#include "cli/job/event_json.h"

#include <nlohmann/json.hpp>
#include <utility>

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
  if (exit.output_cut()) (*json)["output_cut"] = true;
}

Json PhaseJson(const v1::RankPhase& phase) {
  Json json = {{"name", phase.name()}};
  if (phase.total_steps() > 0) json["total_steps"] = phase.total_steps();
  return json;
}

bool AddReport(const v1::RankReport& report, Json* json) {
  const auto add = [&](const char* kind, Json body) {
    (*json)["rank"] = report.rank();
    (*json)["kind"] = kind;
    (*json)["body"] = std::move(body);
    return true;
  };
  switch (report.what_case()) {
    case v1::RankReport::kHello:
      return add("hello", {{"pid", report.hello().pid()}});
    case v1::RankReport::kPhase:
      return add("phase", PhaseJson(report.phase()));
    case v1::RankReport::kNotice:
      return add("notice", {{"text", report.notice().text()}});
    case v1::RankReport::kCheckpoint:
      return add("checkpoint",
                 {{"step", report.checkpoint().step()}, {"path", report.checkpoint().path()}});
    case v1::RankReport::kError:
      return add("error", {{"code", report.error().code()},
                           {"message", report.error().message()},
                           {"hint", report.error().hint()},
                           {"exit_code", report.error().exit_code()}});
    case v1::RankReport::kEnd:
      return add("end", {{"summary", {{"steps", report.end().steps()}}}});
    default:
      return false;
  }
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
    case v1::Event::kGenerationEnded:
      json["event"] = "host_ended";
      return json;
    default:
      return std::nullopt;
  }
}

}  // namespace ds::cli
