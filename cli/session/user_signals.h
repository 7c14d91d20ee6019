#pragma once

// UserSignals: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 on their way to whoever is concerned at
// the moment: at first they end the start of the hosts, later they are the controller's.
//
// Of SIGINT and SIGHUP those that were ignored when this process began stay ignored: that is how
// nohup and a shell's background jobs ask to be left alone. Of signals that came at once the kernel
// hands over the lowest number first and does not say which was sent first: a SIGINT and a SIGHUP
// of one moment are reported as SIGHUP, 129. Create it before any other thread that takes signals:
// from then on the signals are held back in the calling thread and in the threads it starts. Listen
// delivers them on a thread of its own, those of the meantime first; nothing later needs another
// thread, for the machine may have none. The destructor ends that thread; what comes then stays
// held back, for it must not change how a job that has ended is reported.
//
// Threads: SetTarget, StartTimer, EndBy and SetEndStatus from any; a target is called by one of
// them at a time.

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
    std::function<void(int)> on_signal;  // null: they wait
    std::function<void()> on_timer;      // null: nobody cares
    std::function<void()> on_end;        // null, or the last that is done before EndBy's end
  };

  UserSignals();
  ~UserSignals();
  UserSignals(const UserSignals&) = delete;
  UserSignals& operator=(const UserSignals&) = delete;

  // Once.
  Status Listen();
  // From now on the signals' numbers go to `target`, with those that nobody got so far first.
  void SetTarget(Target target);
  // The target hears of it once, when this time has passed. A target may call this.
  void StartTimer(std::chrono::seconds patience);
  // This process ends when that time has passed, with `status`, whatever its threads wait for. Only
  // the first call counts.
  void EndBy(std::chrono::milliseconds patience, int status);
  // Gives that end another status, if it comes: the job's, which is known by now.
  void SetEndStatus(int status) { end_status_ = status; }

 private:
  void Loop();
  void Deliver(int signal);
  void OnTimer();
  [[noreturn]] void End();

  sigset_t watched_{};
  UniqueFd signals_;
  UniqueFd timer_;
  UniqueFd end_;  // a timer, too
  std::atomic<bool> ends_ = false;
  static constexpr int kNoStatus = -1;
  std::atomic<int> end_status_ = kNoStatus;
  UniqueFd quit_;
  std::mutex mutex_;
  Target target_;             // guarded by mutex_
  std::vector<int> waiting_;  // guarded by mutex_
  std::thread thread_;
};

// While it lives the signals go to `target`; they wait afterwards.
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
