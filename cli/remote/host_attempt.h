#pragma once

// HostAttempt is the start of one host, as shared by the thread that works on it and the thread
// that waits for it (fan_out.h): its limits, and the call that it may be blocked in. libssh, the
// resolver and file systems block without a limit, so the waiting thread leaves a blocked thread
// behind; this object and everything else that such a thread uses must belong to it.
//
// Thread-safe.

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"

namespace ds::cli {

class HostAttempt {
 public:
  using Deadline = Interrupter::Deadline;

  // A call that no deadline ends.
  struct BlockingCall {
    std::string doing;  // "asking the SSH agent /run/agent"
    std::string hint;   // the remedy if it does not return; "" = none
  };

  HostAttempt(std::shared_ptr<Interrupter> interrupter, Deadline deadline)
      : interrupter_(std::move(interrupter)), deadline_(deadline) {}

  // Returns the interrupter, which lives as long as this object.
  Interrupter* interrupter() const { return interrupter_.get(); }
  // Returns the time by which the attempt ends or is given up.
  Deadline deadline() const {
    const std::lock_guard lock(mutex_);
    return deadline_;
  }
  void SetDeadline(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    deadline_ = deadline;
  }

  // Names the call that follows. Call it before each step that may block.
  void Enter(BlockingCall call) {
    const std::lock_guard lock(mutex_);
    call_ = std::move(call);
  }
  // Returns the failure of an attempt that has not left the call that was named last: at its
  // deadline, or because the user has interrupted it.
  HostFailure DescribeHang(bool interrupted) const;

 private:
  const std::shared_ptr<Interrupter> interrupter_;
  mutable std::mutex mutex_;
  Deadline deadline_;  // guarded by mutex_
  BlockingCall call_;  // guarded by mutex_
};

}  // namespace ds::cli
