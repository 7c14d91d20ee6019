#pragma once

// EventLog stores the events of one generation of ranks, numbered 1, 2, 3, ..., until the
// controller has acknowledged them.
//
// A full log (unacknowledged bytes at or over `max_bytes`) still accepts every event. Appenders
// must then stop reading rank output until `on_space` is called. So the log exceeds its limit only
// by the contents of the ranks' pipes at their end, and loses nothing.
//
// Events that tell the state of the ranks (IsLasting) are kept after that, for a controller that
// takes over a running generation. Their number is limited, however much a rank reports
// (LastingEvents).
//
// Call Append and Close on the loop's thread; all other functions are thread-safe. `on_space` may
// be called on any thread.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

class SharedValues;

namespace v1 = ::dsrun::v1;

class EventLoop;

struct EventLogLimits {
  std::size_t max_bytes = 64 * 1024 * 1024;  // limit of a full log
  std::size_t batch_bytes = 256 * 1024;      // an event that reaches this ends its batch
  std::size_t ahead_bytes = 1024 * 1024;     // limit of sent and unacknowledged bytes
};

// Returns true for starts and ends of ranks, their phases, checkpoints, errors and shared values.
bool IsLasting(const v1::Event& event);

// LastingEvents keeps lasting events. It loses no start or end, and the first value of each key
// (shared_values.h limits them). Of the other messages of a rank it keeps the last one of each
// kind. Of its errors it keeps the first one, the first one that names absent ranks, and the last
// one, which then has the number of omitted ones.
//
// Not thread-safe.
class LastingEvents {
 public:
  void Keep(v1::Event event);
  // By sequence.
  const std::map<std::uint64_t, v1::Event>& events() const { return events_; }

 private:
  void KeepError(v1::Event event);

  std::map<std::uint64_t, v1::Event> events_;
  std::map<std::string, std::uint64_t> places_;  // of events that are kept once, by their subject
};

class EventLog {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  explicit EventLog(EventLogLimits limits = {}, std::function<void()> on_space = nullptr)
      : limits_(limits), on_space_(std::move(on_space)) {}

  // Adds number and time to the event and stores it.
  void Append(v1::Event event);
  // Call after the last event: GenerationEnded, or the end of the daemon.
  void Close();
  bool full() const;
  // Call when there will be no reader. Drops all events; the log is never full again.
  void Abandon();

  // A watcher of this log. Opening a second one ends the first.
  struct Watcher {
    std::uint64_t id;
    std::uint64_t sent;                   // the last event returned to this watcher
    std::deque<v1::Event> repeated = {};  // to be returned first
  };
  // Returns kOutOfRange if events after `after_sequence` were dropped, or if it is in the future.
  // `again`: the watcher gets the lasting ones of the dropped events first.
  StatusOr<Watcher> Open(std::uint64_t after_sequence, bool again = false);

  enum class Next {
    kBatch,        // `batch` holds the next events
    kAcknowledge,  // too many unacknowledged bytes: read an acknowledgement first
    kEnd,          // all events were returned and the log is closed
    kSuperseded,   // another watcher has been opened
    kDeadline,     // no event before the deadline
  };
  // Waits for events after watcher->sent.
  Next Wait(Watcher* watcher, Deadline deadline, v1::EventBatch* batch);

  // The controller has processed events up to `sequence`; they are dropped.
  void Acknowledge(std::uint64_t sequence);
  // Does the same, unless another watcher has been opened: the last words of a dead controller may
  // come after those of its successor.
  void AcknowledgeFor(const Watcher& watcher, std::uint64_t sequence);

 private:
  struct Entry {
    v1::Event event;
    std::uint64_t end;  // size of all events including this one
  };
  std::uint64_t first_retained() const { return last_sequence_ + 1 - entries_.size(); }
  std::uint64_t CountBytesUpTo(std::uint64_t sequence) const;
  void FillBatch(Watcher* watcher, v1::EventBatch* batch) const;
  void FillBatchAgain(Watcher* watcher, v1::EventBatch* batch) const;
  void Drop(std::uint64_t up_to_sequence);
  std::uint64_t retained_bytes() const { return appended_bytes_ - acknowledged_bytes_; }

  const EventLogLimits limits_;
  const std::function<void()> on_space_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // guarded by mutex_, like all below
  LastingEvents lasting_;      // acknowledged
  std::uint64_t last_sequence_ = 0;
  std::uint64_t appended_bytes_ = 0;
  std::uint64_t acknowledged_bytes_ = 0;
  std::uint64_t watcher_id_ = 0;
  bool closed_ = false;
  bool abandoned_ = false;
};

// The objects shared by all readers of a rank. They must outlive the readers.
struct RankContext {
  EventLoop* loop;
  EventLog* log;
  SharedValues* values;
  std::span<char> buffer;  // scratch space for reading; no content is kept between calls
  std::uint32_t rank;
};

}  // namespace ds::daemon
