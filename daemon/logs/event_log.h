#pragma once

// EventLog: what happened to one generation of ranks, numbered 1, 2, 3, ..., kept until the
// controller has acknowledged it.
//
// Bound: a full log (unacknowledged bytes at or over `max_bytes`) still takes every event, but
// whoever appends is expected to stop reading rank output until `on_room` is called. So the log
// exceeds its bound only by what ranks had in their pipes when they ended, and loses nothing.
//
// Threads: Append and Close on the loop's thread, the rest on any. `on_room` may be called on any.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

class SharedValues;

namespace v1 = ::dsrun::v1;

class EventLoop;

struct EventLogLimits {
  std::size_t max_bytes = 64 * 1024 * 1024;  // full from here on
  std::size_t batch_bytes = 256 * 1024;      // a batch ends with the event that reaches this
  std::size_t ahead_bytes = 1024 * 1024;     // sent without acknowledgement
};

class EventLog {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  explicit EventLog(EventLogLimits limits = {}, std::function<void()> on_room = nullptr)
      : limits_(limits), on_room_(std::move(on_room)) {}

  // Stamps the event with number and time and keeps it.
  void Append(v1::Event event);
  // Nothing follows (GenerationEnded has been appended, or the daemon goes).
  void Close();
  bool full() const;
  // Nobody will ever read: forgets everything and is never full again.
  void Abandon();

  // A watcher of this log. One at a time: opening a second one ends the first.
  struct Watcher {
    std::uint64_t id;
    std::uint64_t sent;  // the last event handed to this watcher
  };
  // kOutOfRange when events behind `after_sequence` are no longer kept, or it has not happened yet.
  StatusOr<Watcher> Open(std::uint64_t after_sequence);

  enum class Next {
    kBatch,        // `batch` holds the next events
    kAcknowledge,  // too much is unacknowledged: read an acknowledgement first
    kEnd,          // everything was handed out and the log is closed
    kSuperseded,   // another watcher has been opened
    kDeadline,     // nothing happened until the deadline
  };
  // Waits for events behind watcher->sent.
  Next Wait(Watcher* watcher, Deadline deadline, v1::EventBatch* batch);

  // The controller has dealt with events up to `sequence`.
  void Acknowledge(std::uint64_t sequence);

 private:
  struct Entry {
    v1::Event event;
    std::uint64_t end;  // bytes of all events up to and with this one
  };
  std::uint64_t first_kept() const { return last_sequence_ + 1 - entries_.size(); }
  std::uint64_t CountBytesUpTo(std::uint64_t sequence) const;
  void FillBatch(Watcher* watcher, v1::EventBatch* batch) const;
  void Drop(std::uint64_t up_to_sequence);
  std::uint64_t kept_bytes() const { return appended_bytes_ - acknowledged_bytes_; }

  const EventLogLimits limits_;
  const std::function<void()> on_room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // guarded by mutex_, like all below
  std::uint64_t last_sequence_ = 0;
  std::uint64_t appended_bytes_ = 0;
  std::uint64_t acknowledged_bytes_ = 0;
  std::uint64_t watcher_id_ = 0;
  bool closed_ = false;
  bool abandoned_ = false;
};

// RankContext is what everything that hears a rank shares, and outlives it.
struct RankContext {
  EventLoop* loop;
  EventLog* log;
  SharedValues* values;
  std::span<char> buffer;  // for reading; its content means nothing between calls
  std::uint32_t rank;
};

}  // namespace ds::daemon
