#pragma once

// OutputReader converts one output stream of one rank into RankOutput events with complete lines.
//
// An unfinished line is forwarded after kUnfinishedAfter: a prompt, a progress bar.
//
// While the event log is full, it does not read. The rank then blocks in write(2), as with a slow
// terminal, and nothing is lost. Resume() continues reading.
//
// Use it on the loop's thread only.

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

// Splits the bytes of a stream at line ends, so that lines of several ranks never mix. A piece ends
// after the last '\n', or after the last '\r' not followed by '\n' (a redrawn progress bar). A line
// that exceeds `max_line` or is flushed before its end is split into partial pieces. The
// concatenated pieces equal the stream.
class LineSplitter {
 public:
  // `partial`: the piece ends inside a line.
  using Sink = std::function<void(std::string_view piece, bool partial)>;

  explicit LineSplitter(Sink sink, std::size_t max_line = kMaxAssembledLine)
      : sink_(std::move(sink)), max_line_(max_line) {}

  // Processes the next bytes of the stream. The view passed to the sink is valid during its call
  // only.
  void Feed(std::string_view bytes);

  // Forwards an unfinished line as a partial piece. Call it at the end of the stream, or when the
  // line has been unfinished for too long.
  void Flush();

  // Return whether a line is unfinished, and the number of pieces forwarded so far.
  bool waits() const { return !rest_.empty(); }
  std::uint64_t pieces() const { return pieces_; }

 private:
  void Emit(std::string_view piece, bool partial);

  Sink sink_;
  std::size_t max_line_;
  std::uint64_t pieces_ = 0;
  std::string rest_;  // the beginning of an unfinished line
};

// The actual delay is up to twice this time, because it is also the interval of the check.
inline constexpr std::chrono::milliseconds kUnfinishedAfter{100};

class OutputReader {
 public:
  // `on_end` is called once, when all writers of the stream have closed it; not after Close.
  OutputReader(RankContext context, v1::RankOutput::Stream stream, UniqueFd fd,
               std::function<void()> on_end);
  ~OutputReader();
  OutputReader(const OutputReader&) = delete;
  OutputReader& operator=(const OutputReader&) = delete;

  Status Watch();
  void Resume();
  bool open() const { return fd_.valid(); }
  std::uint64_t bytes_read() const { return bytes_read_; }

  // Reads the rest of the pipe even if the log is full, forwards an unfinished last line, and
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
  std::optional<EventLoop::TimerId> flush_timer_;  // set while a line may be unfinished
};

}  // namespace ds::daemon
