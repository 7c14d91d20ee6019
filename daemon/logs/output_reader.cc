#include "daemon/logs/output_reader.h"

#include <fcntl.h>

#include <cerrno>
#include <string>
#include <utility>

namespace ds::daemon {
namespace {

// Returns the index after the last line end in `bytes`, 0 if there is none. A '\r' at the very end
// does not count, because its '\n' may follow.
std::size_t FindEndOfLastLine(std::string_view bytes) {
  const std::size_t newline = bytes.rfind('\n');
  const std::size_t after_newline = newline == std::string_view::npos ? 0 : newline + 1;
  const std::string_view after = bytes.substr(after_newline);
  if (after.size() < 2) return after_newline;
  const std::size_t carriage_return = after.rfind('\r', after.size() - 2);
  return carriage_return == std::string_view::npos ? after_newline
                                                   : after_newline + carriage_return + 1;
}

}  // namespace

void LineSplitter::Feed(std::string_view bytes) {
  if (!rest_.empty()) {
    // Only the new bytes and a '\r' directly before them can contain a line end.
    const bool after_return = rest_.back() == '\r' && !bytes.empty() && bytes.front() != '\n';
    std::size_t end = FindEndOfLastLine(bytes);
    if (end == 0 && after_return) {
      Emit(rest_, false);
      rest_.clear();
    } else if (end > 0) {
      rest_.append(bytes.substr(0, end));
      Emit(rest_, false);
      std::string().swap(rest_);  // frees the memory of a long line
      bytes.remove_prefix(end);
    }
  } else if (const std::size_t end = FindEndOfLastLine(bytes); end > 0) {
    Emit(bytes.substr(0, end), false);
    bytes.remove_prefix(end);
  }
  rest_.append(bytes);
  while (rest_.size() > max_line_) {
    Emit(std::string_view(rest_).substr(0, max_line_), true);
    rest_.erase(0, max_line_);
  }
}

void LineSplitter::Flush() {
  if (!rest_.empty()) Emit(rest_, true);
  rest_.clear();
}

void LineSplitter::Emit(std::string_view piece, bool partial) {
  ++pieces_;
  sink_(piece, partial);
}

OutputReader::OutputReader(RankContext context, v1::RankOutput::Stream stream, UniqueFd fd,
                           std::function<void()> on_end)
    : context_(context),
      stream_(stream),
      fd_(std::move(fd)),
      on_end_(std::move(on_end)),
      splitter_([this](std::string_view piece, bool partial) { Emit(piece, partial); }) {}

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
  // It was watched before, so adding it again can fail only without memory. Draining at the rank's
  // end then still reads everything.
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
  if (flush_timer_ || !splitter_.waits()) return;
  flush_timer_ = context_.loop->CallAt(std::chrono::steady_clock::now() + kUnfinishedAfter,
                                       [this, pieces = splitter_.pieces()] {
                                         flush_timer_.reset();
                                         if (splitter_.pieces() == pieces) splitter_.Flush();
                                         FlushInTime();
                                       });
}

OutputReader::Read OutputReader::ReadOnce() {
  const ssize_t got = ::read(fd_.get(), context_.buffer.data(), context_.buffer.size());
  if (got == 0) return Read::kEnd;
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Read::kNothing : Read::kEnd;
  const std::string_view bytes(context_.buffer.data(), static_cast<std::size_t>(got));
  bytes_read_ += bytes.size();
  splitter_.Feed(bytes);
  return Read::kSome;
}

void OutputReader::DrainAndClose() {
  if (!open()) return;
  // A remaining writer could keep this loop busy forever, so read no more than the pipe's capacity.
  const int capacity = ::fcntl(fd_.get(), F_GETPIPE_SZ);
  for (int taken = 0; taken < capacity; taken += static_cast<int>(context_.buffer.size())) {
    if (ReadOnce() != Read::kSome) break;
  }
  Close();
}

void OutputReader::Close() {
  splitter_.Flush();
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
