#include "runtime/offload/io_queue.h"
#include "runtime/base/check.h"

namespace ds::offload {

std::optional<IoFailure> IoTransfer::Wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return left_ == 0; });
  return failure_;
}

bool IoTransfer::done() const {
  const std::lock_guard lock(mutex_);
  return left_ == 0;
}

void IoTransfer::EndBlock(std::optional<IoFailure> failure) {
  const std::lock_guard lock(mutex_);
  DS_CHECK(left_ > 0);
  if (failure && !failure_) failure_ = failure;
  if (--left_ == 0) ended_.notify_all();
}

}  // namespace ds::offload
