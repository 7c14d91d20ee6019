#pragma once

// DiskWait repeats a write to a full disk until there is space again. The caller's queue fills
// meanwhile, and the ranks wait in their own writes: a full disk slows a job down and loses
// nothing.
//
// Repeat is for one thread. The other functions are thread-safe.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "cli/job/log_file.h"
#include "runtime/base/status.h"

namespace ds::cli {

class DiskWait {
 public:
  using Notice = std::function<void(const std::string& text)>;

  // No event announces free space, so it is tried at this interval.
  explicit DiskWait(std::chrono::milliseconds interval = std::chrono::seconds(1))
      : interval_(interval) {}

  // `notice` gets one message when a wait begins and one when it ends. It is called on the thread
  // of Repeat.
  void Listen(Notice notice);
  // Calls `write` until its disk is not full, or once after GiveUp. Returns its last status.
  Status Repeat(const std::function<LogFile::Appended()>& write);
  // Ends the present wait and all later ones.
  void GiveUp();

 private:
  void Tell(const std::string& text);
  bool WaitForInterval();  // returns false after GiveUp

  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Notice notice_;  // guarded by mutex_, like the next
  bool given_up_ = false;
};

}  // namespace ds::cli
