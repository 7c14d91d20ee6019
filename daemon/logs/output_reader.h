#pragma once

// OutputReader: reads one output stream of one rank into RankOutput events, whole lines each.
//
// A line that has not ended for kUnfinishedAfter is passed on as far as it goes: a prompt, a
// progress bar.
//
// While the event log is full it does not read: the rank waits in write(2) as it would for a slow
// terminal, and nothing is lost. Resume() goes on.
//
// Threads: the loop's.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/logs/event_log.h"
#include "daemon/loop/event_loop.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

inline constexpr std::size_t kMaxAssembledLine = 1024 * 1024;

// Cuts the bytes of a stream into pieces that end where a line ends, so that lines of several ranks
// never mix: behind the last '\n', or the last '\r' that something else than '\n' follows (a
// progress bar redraws itself with it). A line that grows beyond `max_line`, or that is flushed
// before its end, is cut into partial pieces. The pieces, one after another, are the stream
// exactly.
class LineSplitter {
 public:
  // `partial`: the piece ends inside a line.
  using Sink = std::function<void(std::string_view piece, bool partial)>;

  explicit LineSplitter(Sink sink, std::size_t max_line = kMaxAssembledLine)
      : sink_(std::move(sink)), max_line_(max_line) {}

  // Takes the next bytes of the stream. The sink's view is valid during its call only.
  void Feed(std::string_view bytes);

  // Passes on what is left of an unfinished line, as a partial piece: the stream has ended, or the
  // line has waited long enough for its end.
  void Flush();

  // Tell whether there is such a line, and how many pieces have been passed on so far.
  bool waits() const { return !rest_.empty(); }
  std::uint64_t pieces() const { return pieces_; }

 private:
  void Emit(std::string_view piece, bool partial);

  Sink sink_;
  std::size_t max_line_;
  std::uint64_t pieces_ = 0;
  std::string rest_;  // the beginning of a line whose end has not come yet
};

// Up to twice as long: it is looked at so often.
inline constexpr std::chrono::milliseconds kUnfinishedAfter{100};

class OutputReader {
 public:
  // `on_end` is called once, when every writer of the stream is gone; not after Close.
  OutputReader(RankContext context, v1::RankOutput::Stream stream, UniqueFd fd,
               std::function<void()> on_end);
  ~OutputReader();
  OutputReader(const OutputReader&) = delete;
  OutputReader& operator=(const OutputReader&) = delete;

  Status Watch();
  void Resume();
  bool open() const { return fd_.valid(); }
  std::uint64_t bytes_read() const { return bytes_read_; }

  // Takes what lies in the pipe, however full the log is, passes on an unfinished last line, and
  // closes the stream.
  void DrainAndClose();

 private:
  enum class Read { kSome, kNothing, kEnd };
  Read ReadOnce();
  void OnReadable();
  void Close();
  void StopWatching();
  void FlushInTime();
  void Emit(std::string_view piece, bool partial);

  const RankContext context_;
  const v1::RankOutput::Stream stream_;
  UniqueFd fd_;
  const std::function<void()> on_end_;
  LineSplitter splitter_;
  std::uint64_t bytes_read_ = 0;
  bool watched_ = false;
  std::optional<EventLoop::TimerId> flush_timer_;  // while a line may be unfinished
};

}  // namespace ds::daemon
