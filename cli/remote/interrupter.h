#pragma once

// Interrupter: ends blocking calls on sockets from outside, when their time is over or the user
// gives up. libssh's calls block; a socket that is shut down makes them return with an error.
//
// Threads: all members from any thread. A Guard belongs to one thread and does not outlive the
// interrupter. The first one starts the thread that watches, and throws std::system_error on a
// machine that has none.

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "runtime/base/unique_fd.h"

namespace ds::cli {

class Interrupter {
  struct Watched {
    UniqueFd socket;  // of its own: the caller may close his at any time
    std::chrono::steady_clock::time_point deadline;
    bool shut = false;
  };

 public:
  using Deadline = std::chrono::steady_clock::time_point;

  Interrupter();
  ~Interrupter();
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

  // Everything that is watched, and will be, ends at once.
  void Interrupt();
  bool interrupted() const;
  // Readable from Interrupt on: for those who poll.
  int fd() const { return event_.get(); }
  // Waits; false as soon as it is interrupted.
  bool Sleep(std::chrono::milliseconds duration);

  // Shuts `socket` down at `deadline` unless the guard is gone by then.
  class Guard {
   public:
    Guard(Interrupter* interrupter, int socket, Deadline deadline);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    void SetDeadline(Deadline deadline);
    // The socket was shut down.
    bool fired() const;

   private:
    Interrupter* const interrupter_;
    std::list<Watched>::iterator watched_;
  };

 private:
  void StartLoop();  // requires mutex_
  void Loop();

  UniqueFd event_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Watched> watched_;  // guarded by mutex_
  bool interrupted_ = false;    // guarded by mutex_
  bool quit_ = false;           // guarded by mutex_
  std::thread thread_;          // guarded by mutex_: from the first guard on
};

}  // namespace ds::cli
