#include "daemon/logs/link_reader.h"

#include <sys/socket.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "daemon/logs/shared_values.h"
#include "daemon/loop/event_loop.h"

namespace ds::daemon {
namespace {

using Json = nlohmann::json;

// Returns the field `name` of `object`; null if there is none.
Json FindField(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? Json(nullptr) : *found;
}

std::string ReadText(const Json& object, const char* name) {
  const Json field = FindField(object, name);
  return field.is_string() ? field.get<std::string>() : "";
}

std::int64_t ReadInteger(const Json& object, const char* name) {
  const Json field = FindField(object, name);
  return field.is_number_integer() ? field.get<std::int64_t>() : 0;
}

std::optional<std::uint64_t> ReadCount(const Json& object, const char* name) {
  const Json field = FindField(object, name);
  return field.is_number_unsigned() ? std::optional(field.get<std::uint64_t>()) : std::nullopt;
}

std::optional<double> ReadNumber(const Json& object, const char* name) {
  const Json field = FindField(object, name);
  return field.is_number() ? std::optional(field.get<double>()) : std::nullopt;
}

v1::RankBeacon MakeBeacon(const Json& body) {
  v1::RankBeacon beacon;
  if (const auto step = ReadCount(body, "step")) beacon.set_step(*step);
  beacon.set_resident_bytes(ReadCount(FindField(body, "memory"), "resident_bytes").value_or(0));
  return beacon;
}

v1::RankStep MakeStep(const Json& body, const std::string& json) {
  v1::RankStep step;
  if (const auto number = ReadCount(body, "step")) step.set_step(*number);
  if (const auto loss = ReadNumber(body, "loss")) step.set_loss(*loss);
  if (const auto speed = ReadNumber(body, "tokens_per_second")) step.set_tokens_per_second(*speed);
  step.set_json(json);
  return step;
}

v1::RankError MakeError(const Json& body) {
  v1::RankError error;
  error.set_code(ReadInteger(body, "code"));
  error.set_message(ReadText(body, "message"));
  error.set_hint(ReadText(body, "hint"));
  error.set_exit_code(ReadInteger(body, "exit_code"));
  const std::string absence = ReadText(body, "absence");
  if (absence == "late") error.set_absence(v1::RankError::LATE);
  if (absence == "unreachable") error.set_absence(v1::RankError::UNREACHABLE);
  for (const Json& rank : FindField(body, "absent")) {
    if (rank.is_number_unsigned()) error.add_absent(rank.get<std::uint32_t>());
  }
  return error;
}

v1::RankPhase MakePhase(const Json& body) {
  v1::RankPhase phase;
  phase.set_name(ReadText(body, "name"));
  phase.set_total_steps(ReadCount(body, "total_steps").value_or(0));
  return phase;
}

v1::RankCheckpoint MakeCheckpoint(const Json& body) {
  v1::RankCheckpoint checkpoint;
  checkpoint.set_step(ReadCount(body, "step").value_or(0));
  checkpoint.set_path(ReadText(body, "path"));
  return checkpoint;
}

}  // namespace

v1::RankReport MakeRankReport(std::uint32_t rank, const RankMessage& message) {
  const Json body = Json::parse(message.body, nullptr, /*allow_exceptions=*/false);
  v1::RankReport report;
  report.set_rank(rank);
  switch (message.kind) {
    case RankMessageKind::kHello:
      report.mutable_hello()->set_pid(ReadCount(body, "pid").value_or(0));
      break;
    case RankMessageKind::kPhase:
      *report.mutable_phase() = MakePhase(body);
      break;
    case RankMessageKind::kBeacon:
      *report.mutable_beacon() = MakeBeacon(body);
      break;
    case RankMessageKind::kStep:
      *report.mutable_step() = MakeStep(body, message.body);
      break;
    case RankMessageKind::kNotice:
      report.mutable_notice()->set_text(ReadText(body, "text"));
      break;
    case RankMessageKind::kCheckpoint:
      *report.mutable_checkpoint() = MakeCheckpoint(body);
      break;
    case RankMessageKind::kError:
      *report.mutable_error() = MakeError(body);
      break;
    case RankMessageKind::kEnd:
      report.mutable_end()->set_steps(ReadCount(FindField(body, "summary"), "steps").value_or(0));
      break;
    case RankMessageKind::kPut:
      report.mutable_put()->set_key(ReadText(body, "key"));
      report.mutable_put()->set_value(ReadText(body, "value"));
      break;
    case RankMessageKind::kGet:    // a request to the daemon
    case RankMessageKind::kValue:  // sent by the daemon
      break;
  }
  return report;
}

Status LinkReader::Watch() {
  DS_RETURN_IF_ERROR(context_.loop->Add(fd_.get(), [this] { OnReadable(); }));
  watched_ = true;
  return OkStatus();
}

void LinkReader::Resume() {
  if (fd_.valid() && !watched_) static_cast<void>(Watch());  // see OutputReader::Resume
}

void LinkReader::OnReadable() {
  if (context_.log->full()) {
    context_.loop->Remove(fd_.get());
    watched_ = false;
    return;
  }
  ReadOnce();
}

// Reads once; returns false if there was nothing to read or the link is closed.
bool LinkReader::ReadOnce() {
  const ssize_t got = ::read(fd_.get(), context_.buffer.data(), context_.buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    Close();
    return false;
  }
  reader_.Feed(std::string_view(context_.buffer.data(), static_cast<std::size_t>(got)));
  while (true) {
    StatusOr<std::optional<RankMessage>> message = reader_.Next();
    if (!message.ok()) Break();
    if (broken_) return false;
    if (!message->has_value()) return true;
    Report(**message);
  }
}

void LinkReader::Break() {
  broken_ = true;
  Close();
}

// The rank waits for the answer to its single request, so the socket has space for it.
void LinkReader::Answer(const std::string& key, const std::string& value) {
  const Json body = {{"key", key}, {"value", value}};
  const auto line = EncodeRankMessage({RankMessageKind::kValue, body.dump()});
  const ssize_t sent =
      !line.ok() ? -1 : ::send(fd_.get(), line->data(), line->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (!line.ok() || sent != static_cast<ssize_t>(line->size())) Break();
}

void LinkReader::Report(const RankMessage& message) {
  if (message.kind == RankMessageKind::kGet) {
    const std::string key =
        ReadText(Json::parse(message.body, nullptr, /*allow_exceptions=*/false), "key");
    context_.values->Ask(context_.rank, key,
                         [this, key](const std::string& value) { Answer(key, value); });
    return;
  }
  v1::RankReport report = MakeRankReport(context_.rank, message);
  if (report.has_put() && !context_.values->Put(report.put().key(), report.put().value()).ok()) {
    return Break();
  }
  v1::Event event;
  *event.mutable_rank_report() = std::move(report);
  context_.log->Append(std::move(event));
}

void LinkReader::DrainAndClose() {
  // The rank is gone, so the stream ends unless a process that it started holds the link. That
  // process is ignored.
  for (int round = 0; round < 8 && fd_.valid() && ReadOnce(); ++round) {
  }
  Close();
}

void LinkReader::Close() {
  if (fd_.valid()) context_.values->Forget(context_.rank);
  if (watched_) context_.loop->Remove(fd_.get());
  watched_ = false;
  fd_.Reset();
}

}  // namespace ds::daemon
