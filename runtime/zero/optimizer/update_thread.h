#pragma once

// UpdateThread: one thread that updates while the rank's own computes, on cores that it has for
// itself, a thread of LibTorch's pool on each of them.
//
// Threads: Run is one thread's at a time; jobs run in the order of the calls. Lifetimes: what a job
// refers to outlives its future. The destructor waits for all jobs.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/status.h"

namespace ds::zero {

class UpdateThread {
 public:
  // Throws where the kernel does not let it have these cores. The calling thread's loops go on with
  // as many threads as they have.
  explicit UpdateThread(const std::vector<int>& cores);
  ~UpdateThread();
  UpdateThread(const UpdateThread&) = delete;
  UpdateThread& operator=(const UpdateThread&) = delete;

  // Returns what ends with the job, when what that holds is gone, and gives what that throws. No
  // gradients of it are recorded.
  std::future<void> Run(std::function<void()> job);

 private:
  void Loop(const std::vector<int>& cores);
  void End();

  std::promise<Status> started_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> jobs_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace ds::zero
