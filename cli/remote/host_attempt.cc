#include "cli/remote/host_attempt.h"

namespace ds::cli {

HostFailure HostAttempt::DescribeHang(bool interrupted) const {
  const std::lock_guard lock(mutex_);
  return {.kind = interrupted ? FailureKind::kInterrupted : FailureKind::kTimeout,
          .message = interrupted ? "it was still " + call_.doing
                                 : "no end of " + call_.doing + ", not even after --ssh_timeout",
          .hint = call_.hint,
          .hung = true};
}

}  // namespace ds::cli
