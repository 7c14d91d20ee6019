#pragma once

// BacklogWriter: writes to the terminal without ever making the writer wait for it.
//
// Text is queued and written by a thread of its own, in order, over both streams; there is none
// before Start, or before there is text. While a blocked console (Ctrl-S, a slow pipe) has more
// than the limit queued, further text that may be dropped is dropped and counted, and a line says
// how much once there is room again: before the next text, or when all that was queued has been
// written.
//
// A regular file is slow and never blocked: who shows something writes it at once and loses
// nothing, as with the logs. So does he on a machine that has no more threads, whatever the stream
// is; then he waits for a blocked console, and so do the others, GiveUp included.
//
// A disk without space for what a stream shows is told of once, on standard error.
//
// Threads: safe to use from any thread.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace ds::cli {

class BacklogWriter {
 public:
  static constexpr std::size_t kDefaultLimit = std::size_t{64} << 20;

  explicit BacklogWriter(std::size_t limit_bytes = kDefaultLimit);
  // Writes what is queued first, unless it was given up.
  ~BacklogWriter();
  BacklogWriter(const BacklogWriter&) = delete;
  BacklogWriter& operator=(const BacklogWriter&) = delete;

  // Has the thread now, while the machine has one to give: throws std::system_error where it has
  // none.
  void Start();

  // Whole lines; dropped when the backlog is full.
  void WriteLines(int fd, std::string text);
  // For what is drawn anew later: dropped without being counted when the backlog is full; false
  // then.
  bool WriteRows(int fd, std::string text);
  // Never dropped: notices, the verdict.
  void WriteAlways(int fd, std::string text);

  // Returns when everything queued has been written, or given up.
  void Flush();
  // Nobody waits for the console any more. What it has not taken is dropped, and later text too;
  // the stream that is not blocked gets its part and a line that says so.
  void GiveUp();

  std::uint64_t dropped_lines() const;
  // Has grown when the console has taken something since.
  std::uint64_t written_bytes() const;

 private:
  struct Backlog;  // shared with the thread, which GiveUp leaves behind in its write

  // These require the backlog's mutex.
  void StartThread();  // throws std::system_error
  void Queue(int fd, std::string text);

  const std::shared_ptr<Backlog> backlog_;
  std::thread thread_;
};

}  // namespace ds::cli
