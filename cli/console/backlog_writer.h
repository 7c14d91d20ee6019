#pragma once

// BacklogWriter writes to the terminal without blocking its callers.
//
// A separate thread writes the queued text in order, across both streams. Start or the first text
// creates it. If a blocked console (Ctrl-S, a slow pipe) fills the queue beyond its limit, further
// droppable text is dropped and counted. One line then reports the dropped amount: before the next
// queued text, or when the queue has drained.
//
// A regular file loses nothing: its text is never dropped, and AwaitRoom limits the queue. It may
// hang, as a file on a file server can, so it is written by the thread, too. If the machine has no
// thread left, callers write directly; then a blocked console blocks the caller, and all other
// callers, including GiveUp.
//
// A full disk under a stream is reported once, on standard error.
//
// Thread-safe.

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
  // Writes the queued text first, unless GiveUp was called.
  ~BacklogWriter();
  BacklogWriter(const BacklogWriter&) = delete;
  BacklogWriter& operator=(const BacklogWriter&) = delete;

  // Starts the thread now, while the machine still has threads. Throws std::system_error if it has
  // none.
  void Start();

  // Queues full lines. They are dropped if the backlog is full.
  void WriteLines(int fd, std::string text);
  // Queues text that will be redrawn later. If the backlog is full, returns false and drops it
  // uncounted.
  bool WriteRows(int fd, std::string text);
  // Queues text that is never dropped: notices, the verdict.
  void WriteAlways(int fd, std::string text);

  // Blocks while the queue is over its limit, which happens only with regular files.
  void AwaitRoom();
  // Blocks until the queue is written or given up.
  void Flush();
  // Stops waiting for the console. Drops the unwritten text and all later text. A stream that is
  // not blocked still gets its part and a line about the loss.
  void GiveUp();

  std::uint64_t dropped_lines() const;
  // Grows when the console accepts text.
  std::uint64_t written_bytes() const;

 private:
  struct Backlog;  // shared with the thread, which may outlive this object after GiveUp

  // The functions below require the backlog's mutex.
  void StartThread();  // throws std::system_error
  void Queue(int fd, std::string text);

  const std::shared_ptr<Backlog> backlog_;
  std::thread thread_;
};

}  // namespace ds::cli
