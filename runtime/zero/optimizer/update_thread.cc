#include "runtime/zero/optimizer/update_thread.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <utility>

#include "runtime/device/thread_cores.h"

namespace ds::zero {

// LibTorch gives a thread that runs its first loop the number of threads that was set last by any
// thread. The caller therefore fixes its own number before this thread sets another.
UpdateThread::UpdateThread(const std::vector<int>& cores) {
  static_cast<void>(at::get_num_threads());
  thread_ = std::thread([this, cores] { Loop(cores); });
  const Status bound = started_.get_future().get();
  if (bound.ok()) return;
  End();
  TORCH_CHECK(false, bound.message());
}

UpdateThread::~UpdateThread() { End(); }

void UpdateThread::End() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::future<void> UpdateThread::Run(std::function<void()> job) {
  // Destroys the job before the future is ready: its leases would otherwise end on this thread
  // while the waiting thread continues.
  std::packaged_task<void()> task([job = std::move(job)]() mutable {
    const std::function<void()> own = std::exchange(job, nullptr);
    own();
  });
  std::future<void> ended = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(task));
  }
  changed_.notify_all();
  return ended;
}

void UpdateThread::Loop(const std::vector<int>& cores) {
  const c10::NoGradGuard no_grad;
  started_.set_value(device::BindThreadAndPool(cores, static_cast<int>(cores.size())));
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::packaged_task<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
  }
}

}  // namespace ds::zero
