#include "daemon/logs/link_reader.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "runtime/base/clock.h"

namespace ds::daemon {

Status LinkReader::Watch() {
  DS_RETURN_IF_ERROR(context_.loop->Add(fd_.get(), [this] { OnReadable(); }));
  watched_ = true;
  return OkStatus();
}

void LinkReader::Resume() {
  if (fd_.valid() && !watched_) static_cast<void>(Watch());  // as OutputReader::Resume
}

void LinkReader::OnReadable() {
  if (context_.log->full()) {
    context_.loop->Remove(fd_.get());
    watched_ = false;
    return;
  }
  ReadOnce();
}

// Reads what one call gives; false when there was nothing or the link is closed.
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
    if (!message.ok()) {
      broken_ = true;
      Close();
      return false;
    }
    if (!message->has_value()) return true;
    Report(**std::move(message));
  }
}

void LinkReader::Report(RankMessage message) {
  if (message.kind == RankMessageKind::kBeacon) {
    last_beacon_ = message.body;
    last_beacon_unix_nanos_ = Clock::System().UnixNanos();
  }
  v1::Event event;
  v1::RankReport* report = event.mutable_rank_report();
  report->set_rank(context_.rank);
  report->set_kind(std::string(RankMessageKindName(message.kind)));
  report->set_body(std::move(message.body));
  context_.log->Append(std::move(event));
}

void LinkReader::DrainAndClose() {
  // The rank is gone, so the end of the stream comes unless something it started holds the link;
  // that has no say.
  for (int round = 0; round < 8 && fd_.valid() && ReadOnce(); ++round) {
  }
  Close();
}

void LinkReader::Close() {
  if (watched_) context_.loop->Remove(fd_.get());
  watched_ = false;
  fd_.Reset();
}

}  // namespace ds::daemon
