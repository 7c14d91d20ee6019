#pragma once

// Interrupter ends blocking calls on sockets from outside, at their deadline or when the user
// cancels. libssh's calls block; shutting the socket down makes them return with an error.
//
// Thread-safe. A Guard belongs to one thread and must not outlive the interrupter. The first Guard
// starts the watching thread, and throws std::system_error if the machine has no free thread.

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "runtime/base/unique_fd.h"

namespace ds::cli {

class Interrupter {
  struct Watched {
    UniqueFd socket;  // a duplicate, because the caller may close its socket at any time
    std::chrono::steady_clock::time_point deadline;
    bool shut = false;
  };

 public:
  using Deadline = std::chrono::steady_clock::time_point;

  Interrupter();
  ~Interrupter();
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

  // Shuts down all watched sockets, now and in the future.
  void Interrupt();
  bool interrupted() const;
  // Returns a descriptor that is readable after Interrupt, for poll.
  int fd() const { return event_.get(); }
  // Sleeps; returns false as soon as Interrupt is called.
  bool Sleep(std::chrono::milliseconds duration);

  // Shuts `socket` down at `deadline`, unless the guard is destroyed before.
  class Guard {
   public:
    Guard(Interrupter* interrupter, int socket, Deadline deadline);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    void SetDeadline(Deadline deadline);
    // Returns whether the socket was shut down.
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
  std::thread thread_;          // guarded by mutex_; started by the first guard
};

}  // namespace ds::cli
