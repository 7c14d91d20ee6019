#pragma once

// WarmPool: `dsrund --serve`. Keeps daemons of this host started and waiting, each a process of its
// own that serves one job and ends with it; a controller of the same user takes one instead of
// starting its own (handover.h). Nothing is shared between jobs but the listening socket they came
// through.
//
//     $XDG_RUNTIME_DIR/dsrund-serve/        0700; /tmp/dsrund-serve-UID where that is unset
//       serve.sock                          0600, inherited by the waiting daemons, which accept
//
// A taken daemon is replaced a moment later, so that the new one's start does not slow down the
// job's; at once when a controller is waiting already. SIGTERM, SIGINT or SIGHUP end the pool and
// the daemons that still wait; jobs that run go on to their end.
//
// Threads: one, the loop's.

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "daemon/loop/event_loop.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// Where a daemon that waits finds what it inherits.
inline constexpr int kInheritedListener = 3;
inline constexpr int kInheritedOwner = 4;

struct WarmPoolOptions {
  int waiting = 2;  // how many wait; each costs about 6 MiB
};

class WarmPool {
 public:
  // Listens when it returns. kAlreadyExists when this user has a pool on this host.
  static StatusOr<std::unique_ptr<WarmPool>> Create(EventLoop* loop, WarmPoolOptions options);
  ~WarmPool();
  WarmPool(const WarmPool&) = delete;
  WarmPool& operator=(const WarmPool&) = delete;

  std::string socket() const;

 private:
  WarmPool(EventLoop* loop, WarmPoolOptions options) : loop_(loop), options_(options) {}
  Status Listen();
  Status Lock();
  Status WatchSignals();
  void OnSignal();
  void Fill();
  Status StartOne();
  void OnTaken(int notice_fd);
  void AwaitNeed();

  EventLoop* const loop_;
  const WarmPoolOptions options_;
  UniqueFd lock_;
  UniqueFd listener_;
  UniqueFd signals_;
  bool watching_listener_ = false;
  // The daemons that wait, by our end of the socket pair each has with us: a byte means that it has
  // a job, the end that it has ended. Closing ours ends one that waits.
  std::map<int, UniqueFd> waiting_;
  std::optional<EventLoop::TimerId> refill_;
};

}  // namespace ds::daemon
