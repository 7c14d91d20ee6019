#include "daemon/logs/output_reader.h"

#include <fcntl.h>

#include <cerrno>
#include <string>
#include <utility>

namespace ds::daemon {
namespace {

// What a verdict quotes.
constexpr std::size_t kLastLines = 50;
constexpr std::size_t kLastBytes = 64 * 1024;

}  // namespace

OutputReader::OutputReader(MonitorContext context, v1::RankOutput::Stream stream, UniqueFd fd,
                           std::function<void()> on_end)
    : context_(context),
      stream_(stream),
      fd_(std::move(fd)),
      on_end_(std::move(on_end)),
      pump_([this](std::string_view piece, bool partial) { Emit(piece, partial); }),
      tail_(kLastLines, kLastBytes) {}

OutputReader::~OutputReader() {
  StopWatching();
  if (flush_timer_) context_.loop->CancelTimer(*flush_timer_);
}

Status OutputReader::Watch() {
  DS_RETURN_IF_ERROR(context_.loop->Add(fd_.get(), [this] { OnReadable(); }));
  watched_ = true;
  return OkStatus();
}

void OutputReader::Resume() {
  // It was watched before, so adding it again can only fail for want of memory; the drain at the
  // rank's end still takes everything then.
  if (open() && !watched_) static_cast<void>(Watch());
}

void OutputReader::StopWatching() {
  if (watched_) context_.loop->Remove(fd_.get());
  watched_ = false;
}

void OutputReader::OnReadable() {
  if (context_.log->full()) {
    StopWatching();
    return;
  }
  if (ReadOnce() != Read::kEnd) return FlushInTime();
  Close();
  on_end_();
}

void OutputReader::FlushInTime() {
  if (flush_timer_ || !pump_.waits()) return;
  flush_timer_ = context_.loop->CallAt(std::chrono::steady_clock::now() + kUnfinishedAfter,
                                       [this, pieces = pump_.pieces()] {
                                         flush_timer_.reset();
                                         if (pump_.pieces() == pieces) pump_.Flush();
                                         FlushInTime();
                                       });
}

OutputReader::Read OutputReader::ReadOnce() {
  const ssize_t got = ::read(fd_.get(), context_.buffer.data(), context_.buffer.size());
  if (got == 0) return Read::kEnd;
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Read::kNothing : Read::kEnd;
  const std::string_view bytes(context_.buffer.data(), static_cast<std::size_t>(got));
  bytes_read_ += bytes.size();
  tail_.Append(bytes);
  pump_.Feed(bytes);
  return Read::kSome;
}

void OutputReader::DrainAndClose() {
  if (!open()) return;
  // A writer that is still there could keep us here for ever: no more than the pipe can hold.
  const int capacity = ::fcntl(fd_.get(), F_GETPIPE_SZ);
  for (int taken = 0; taken < capacity; taken += static_cast<int>(context_.buffer.size())) {
    if (ReadOnce() != Read::kSome) break;
  }
  Close();
}

void OutputReader::Close() {
  pump_.Flush();
  StopWatching();
  fd_.Reset();
}

void OutputReader::Emit(std::string_view piece, bool partial) {
  v1::Event event;
  v1::RankOutput* output = event.mutable_rank_output();
  output->set_rank(context_.rank);
  output->set_stream(stream_);
  output->set_data(piece.data(), piece.size());
  output->set_partial(partial);
  context_.log->Append(std::move(event));
}

}  // namespace ds::daemon
