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
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "daemon/logs/log_pump.h"
#include "daemon/logs/monitor_context.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// Up to twice as long: it is looked at so often.
inline constexpr std::chrono::milliseconds kUnfinishedAfter{100};

class OutputReader {
 public:
  // `on_end` is called once, when every writer of the stream is gone; not after Close.
  OutputReader(MonitorContext context, v1::RankOutput::Stream stream, UniqueFd fd,
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

  // Returns the last lines of what was read.
  std::string_view last_lines() const { return tail_.Last(); }

 private:
  enum class Read { kSome, kNothing, kEnd };
  Read ReadOnce();
  void OnReadable();
  void Close();
  void StopWatching();
  void FlushInTime();
  void Emit(std::string_view piece, bool partial);

  const MonitorContext context_;
  const v1::RankOutput::Stream stream_;
  UniqueFd fd_;
  const std::function<void()> on_end_;
  LogPump pump_;
  LineTail tail_;
  std::uint64_t bytes_read_ = 0;
  bool watched_ = false;
  std::optional<EventLoop::TimerId> flush_timer_;  // while a line may be unfinished
};

}  // namespace ds::daemon
