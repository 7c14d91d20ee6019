#pragma once

// BacklogWriter: writes to the terminal without ever making the writer wait for it.
//
// Text is queued and written by a thread of its own, in order, over both streams; there is none
// until there is text. On a machine that has no more threads who shows something writes it, and
// waits. While a blocked console (Ctrl-S, a slow pipe) has more than the limit queued, further text
// that may be dropped is dropped and counted, and a line says how much once there is room again:
// before the next text, or when all that was queued has been written.
//
// Threads: safe to use from any thread.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace ds::cli {

class BacklogWriter {
 public:
  static constexpr std::size_t kDefaultLimit = std::size_t{64} << 20;

  explicit BacklogWriter(std::size_t limit_bytes = kDefaultLimit);
  // Writes what is queued first.
  ~BacklogWriter();
  BacklogWriter(const BacklogWriter&) = delete;
  BacklogWriter& operator=(const BacklogWriter&) = delete;

  // Whole lines; dropped when the backlog is full.
  void WriteLines(int fd, std::string text);
  // For what is drawn anew later: dropped without being counted when the backlog is full; false
  // then.
  bool WriteRows(int fd, std::string text);
  // Never dropped: notices, the verdict.
  void WriteAlways(int fd, std::string text);

  // Returns when everything queued so far has been written.
  void Flush();

  std::uint64_t dropped_lines() const;

 private:
  struct Output {
    int fd;
    std::string text;
  };
  void Loop();
  void Queue(int fd, std::string text);  // requires mutex_, as the next three
  void WriteBacklog();                   // in place of the thread
  bool IsFull(const std::string& text) const;
  void ReportDrops();

  const std::size_t limit_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable work_;     // backlog_ or ending_ changed
  std::condition_variable drained_;  // queued_bytes_ became 0, and no drop is unreported
  std::deque<Output> backlog_;
  std::size_t queued_bytes_ = 0;        // in backlog_ and in the one being written
  std::uint64_t unreported_drops_ = 0;  // lines
  std::uint64_t dropped_lines_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace ds::cli
