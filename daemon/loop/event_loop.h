#pragma once

// EventLoop: the one thread that owns every rank. Descriptors, timers and work posted by other
// threads are handled one after another, so nothing a handler touches needs a lock.
//
// Threads: Post from any thread; everything else, Run included, on the loop's thread. That thread
// must live as long as the ranks it starts (their parent-death signal is tied to it).
// Order: ready descriptors are handled in the order in which they became ready, which is how the
// first of several failing ranks is told from those that failed because of it.

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

// Lets the signals that a daemon handles in its loop, those that tell it to end (SIGTERM, SIGINT,
// SIGHUP) and SIGCHLD, arrive at descriptors of OpenLoopSignals only. Holds for the calling thread
// and for those it starts from now on.
void BlockLoopSignals();

// A signalfd of them, non-blocking and closed on exec.
StatusOr<UniqueFd> OpenLoopSignals();

class EventLoop {
 public:
  using Handler = std::function<void()>;
  using TimePoint = std::chrono::steady_clock::time_point;
  using TimerId = std::pair<TimePoint, std::uint64_t>;

  static StatusOr<std::unique_ptr<EventLoop>> Create();

  // Calls `handler` whenever `fd` can be read, has ended or failed. The caller keeps `fd` open
  // until Remove; a handler may add and remove descriptors, its own included.
  Status Add(int fd, Handler handler);
  // Stops watching; fine when it is not watched.
  void Remove(int fd);

  // Calls `handler` once, at or after `when`.
  TimerId CallAt(TimePoint when, Handler handler);
  // Fine when it has been called already.
  void CancelTimer(const TimerId& id) { timers_.erase(id); }

  // Runs `work` on the loop's thread soon, in the order of posting. False when the loop has ended
  // and will not: work is run or refused, never forgotten.
  bool Post(Handler work);

  // Handles events until Quit is called by a handler, then the work posted until that moment.
  Status Run();
  void Quit() { quit_ = true; }

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  // Handlers that are removed meanwhile, and what they hold, are gone when this returns.
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
