#pragma once

// UserSignals delivers SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 to the current target: in a
// front the connection to the agent, in the agent first the start of the hosts, later the
// controller. An agent also gets those that its fronts send.
//
// SIGINT and SIGHUP stay ignored if they were ignored when this process began, because nohup and
// background jobs of a shell rely on it. The kernel delivers simultaneous signals in the order of
// their numbers, not of their arrival: a SIGINT and a SIGHUP of the same moment are reported as
// SIGHUP, 129.
//
// Create it before any other thread that receives signals: it blocks the signals in the calling
// thread and in the threads that this thread starts later. Listen delivers them on its own thread,
// including the pending ones. No later function needs another thread, because the machine may have
// none. The destructor ends that thread; later signals stay blocked, because they must not change
// the reported result of a finished job.
//
// SetTarget, Inject, StartTimer, EndBy and SetEndStatus are thread-safe. Calls to a target are
// serialized.

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class UserSignals {
 public:
  struct Target {
    std::function<void(int)> on_signal;  // null: signals stay queued
    std::function<void()> on_timer;      // null: ignored
    std::function<void()> on_end;        // null, or called last before EndBy ends the process
  };

  // `on_own` is called with each signal that this process itself receives, before the target and
  // also without one. null: ignored.
  explicit UserSignals(std::function<void(int)> on_own = nullptr);
  ~UserSignals();
  UserSignals(const UserSignals&) = delete;
  UserSignals& operator=(const UserSignals&) = delete;

  // Call it once.
  Status Listen();
  // Delivers signal numbers to `target` from now on, queued signals first.
  void SetTarget(Target target);
  // Delivers a signal as if this process had received it.
  void Inject(int signal) { Deliver(signal); }
  // Calls the target's on_timer once, after this time. A target may call this function.
  void StartTimer(std::chrono::seconds timeout);
  // Ends this process with `status` after this time, even if its threads are blocked. Only the
  // first call has an effect.
  void EndBy(std::chrono::milliseconds timeout, int status);
  // Replaces the status of EndBy, once the job's status is known.
  void SetEndStatus(int status) { end_status_ = status; }

 private:
  void Loop();
  void Deliver(int signal);
  void OnTimer();
  [[noreturn]] void End();

  const std::function<void(int)> on_own_;
  sigset_t watched_{};
  UniqueFd signals_;
  UniqueFd timer_;
  UniqueFd end_;  // a timer
  std::atomic<bool> ends_ = false;
  static constexpr int kNoStatus = -1;
  std::atomic<int> end_status_ = kNoStatus;
  UniqueFd quit_;
  std::mutex mutex_;
  Target target_;             // guarded by mutex_
  std::vector<int> waiting_;  // guarded by mutex_
  std::thread thread_;
};

// Sets `target` during its lifetime; afterwards signals stay queued.
class SignalTarget {
 public:
  SignalTarget(UserSignals* signals, UserSignals::Target target) : signals_(*signals) {
    signals_.SetTarget(std::move(target));
  }
  ~SignalTarget() { signals_.SetTarget({}); }
  SignalTarget(const SignalTarget&) = delete;
  SignalTarget& operator=(const SignalTarget&) = delete;

 private:
  UserSignals& signals_;
};

}  // namespace ds::cli
