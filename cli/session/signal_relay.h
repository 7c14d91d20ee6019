#pragma once

// SignalRelay: the user's signals on their way to whoever is concerned at the moment: at first they
// end the start of the hosts, later they are the controller's.
//
// Threads: Send and SetTarget from any; the target is called by one of them at a time.

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace ds::cli {

class SignalRelay {
 public:
  void Send(int signal) {
    const std::lock_guard lock(mutex_);
    if (target_) {
      target_(signal);
    } else {
      waiting_.push_back(signal);
    }
  }
  // Gives `target` the signals from now on, those that nobody got so far first; none: they wait.
  void SetTarget(std::function<void(int)> target) {
    const std::lock_guard lock(mutex_);
    target_ = std::move(target);
    if (!target_) return;
    for (const int signal : std::exchange(waiting_, {})) target_(signal);
  }

 private:
  std::mutex mutex_;
  std::function<void(int)> target_;  // guarded by mutex_
  std::vector<int> waiting_;         // guarded by mutex_
};

}  // namespace ds::cli
