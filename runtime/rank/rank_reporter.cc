#include "runtime/rank/rank_reporter.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "runtime/base/log.h"

namespace ds::rank {

using json = nlohmann::ordered_json;

void RankReporter::Send(RankMessageKind kind, const json& body) {
  if (link_ == nullptr) return;
  // Text from outside (paths, tensor names) need not be UTF-8; invalid bytes are replaced.
  const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
  const Status status = link_->Send({kind, text});
  if (status.ok()) return;
  const std::string message = "rank " + std::to_string(rank_) + ": " + status.message();
  // The user misses a message that does not fit. A lost daemon is not an error here: its end kills
  // this rank (rank_reporter.h).
  if (status.code() == StatusCode::kInvalidArgument && !has_warned_) {
    has_warned_ = true;
    LogWarning(message + "; such messages of this rank are dropped");
  } else {
    LogDebug(message);
  }
}

void RankReporter::ReportHello() { Send(RankMessageKind::kHello, {{"pid", ::getpid()}}); }

void RankReporter::ReportPhase(std::string_view name, std::int64_t total_steps) {
  json body = {{"name", name}};
  if (total_steps > 0) body["total_steps"] = total_steps;
  Send(RankMessageKind::kPhase, body);
}

void RankReporter::ReportNotice(std::string_view text) {
  Send(RankMessageKind::kNotice, {{"text", text}});
  if (link_ == nullptr) std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
}

void RankReporter::ReportIdleKeys(const config::TrainJob& job, const config::DsConfig& config,
                                  config::RankPlacement placement) {
  for (const std::string& idle : config::ListIdleKeys(job.ds_config, config, placement)) {
    ReportNotice(idle);
  }
}

void RankReporter::ReportBeacon(std::int64_t step, const json& memory) {
  Send(RankMessageKind::kBeacon, {{"step", step}, {"memory", memory}});
}

void RankReporter::ReportStep(const json& metrics) {
  Send(RankMessageKind::kStep, metrics);
  if (link_ == nullptr) std::printf("%s\n", metrics.dump().c_str());
}

void RankReporter::ReportCheckpoint(std::int64_t step, const std::string& path) {
  Send(RankMessageKind::kCheckpoint, {{"step", step}, {"path", path}});
  if (link_ == nullptr) std::printf("checkpoint: %s\n", path.c_str());
}

void RankReporter::ReportError(const Failure& failure) {
  json body = {{"code", static_cast<int>(failure.status.code())},
               {"message", failure.status.message()},
               {"hint", failure.hint},
               {"exit_code", failure.exit_code}};
  if (failure.absence.kind != comm::Absence::Kind::kNone) {
    const bool late = failure.absence.kind == comm::Absence::Kind::kLate;
    body["absence"] = late ? "late" : "unreachable";
    body["absent"] = failure.absence.ranks;
  }
  Send(RankMessageKind::kError, body);
  LogError(failure.status.message());  // for a rank without a link, and for the rank's own log
}

void RankReporter::ReportEnd(const json& summary) {
  Send(RankMessageKind::kEnd, {{"summary", summary}});
}

}  // namespace ds::rank
