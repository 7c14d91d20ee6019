#pragma once

// EventLoop runs the one thread that owns every rank. It handles descriptors, timers and work
// posted by other threads one after another, so handlers need no locks.
//
// Post is thread-safe. Call all other functions, including Run, on the loop's thread. That thread
// must live as long as the ranks it starts, because their parent-death signal is tied to it.
//
// Ready descriptors are handled in the order in which they became ready. This order tells the first
// failing rank from ranks that failed as a consequence.

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// Blocks the signals that a daemon handles in its loop: those that end it (SIGTERM, SIGINT, SIGHUP)
// and SIGCHLD. They then arrive only at descriptors from OpenLoopSignals. Affects the calling
// thread and threads that it starts afterwards.
void BlockLoopSignals();

// Opens a signalfd for these signals, non-blocking and closed on exec.
StatusOr<UniqueFd> OpenLoopSignals();

class EventLoop {
 public:
  using Handler = std::function<void()>;
  using TimePoint = std::chrono::steady_clock::time_point;
  using TimerId = std::pair<TimePoint, std::uint64_t>;

  static StatusOr<std::unique_ptr<EventLoop>> Create();

  // Calls `handler` when `fd` becomes readable, reaches its end or fails. The caller must keep `fd`
  // open until Remove. A handler may add and remove descriptors, including its own.
  Status Add(int fd, Handler handler);
  // Stops watching `fd`; does nothing if it is not watched.
  void Remove(int fd);

  // Calls `handler` once, at or after `when`.
  TimerId CallAt(TimePoint when, Handler handler);
  // Does nothing if the timer has already fired.
  void CancelTimer(const TimerId& id) { timers_.erase(id); }

  // Runs `work` soon on the loop's thread, in the order of posting. Returns false if the loop has
  // ended and will not run it. Work is run or refused, never silently dropped.
  bool Post(Handler work);

  // Handles events until a handler calls Quit, then runs the work posted until then.
  Status Run();
  void Quit() { quit_ = true; }

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  // Removed handlers and their captures are destroyed before this returns.
  void HandleReady(std::span<const epoll_event> events);
  int ComputeTimeout() const;
  void RunTimers();
  void RunPosted();

  UniqueFd epoll_;
  UniqueFd wake_;  // eventfd, written by Post
  // Shared, because a handler that removes itself must outlive its own call.
  std::unordered_map<int, std::shared_ptr<Handler>> handlers_;
  std::map<TimerId, Handler> timers_;
  std::uint64_t next_timer_ = 0;
  bool quit_ = false;
  std::mutex posted_mutex_;
  std::vector<Handler> posted_;  // guarded by posted_mutex_
  bool ended_ = false;           // guarded by posted_mutex_
};

}  // namespace ds::daemon
