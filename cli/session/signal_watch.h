#pragma once

// SignalWatch: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 as calls on a thread of their own.
//
// SIGINT and SIGHUP stay ignored when they were as this process began: that is how
// nohup and a shell's background jobs ask to be left alone. Create it before any other thread that
// takes signals: from then on the signals are held back in the calling thread and in the threads it
// starts. Listen delivers them, those of the meantime first. The destructor ends the thread; what
// comes then stays held back, for it must not change how a job that has ended is reported.

#include <csignal>
#include <functional>
#include <thread>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // `on_signal` is called with each signal's number. Once.
  Status Listen(std::function<void(int)> on_signal);

 private:
  void Loop();

  std::function<void(int)> on_signal_;
  sigset_t watched_{};
  UniqueFd signals_;
  UniqueFd quit_;
  std::thread thread_;
};

}  // namespace ds::cli
