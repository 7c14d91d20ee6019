#pragma once

// UpdateThread: a thread that runs optimizer updates in parallel with the rank's own computation.
// It has its own cores, with one thread of LibTorch's pool on each.
//
// Threads: Run may be called by one thread at a time; jobs run in call order. Lifetimes: everything
// that a job refers to must outlive the job's future. The destructor waits for all jobs.

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
  // Throws if the kernel does not grant these cores. The calling thread keeps its number of threads
  // in loops.
  explicit UpdateThread(const std::vector<int>& cores);
  ~UpdateThread();
  UpdateThread(const UpdateThread&) = delete;
  UpdateThread& operator=(const UpdateThread&) = delete;

  // Returns a future that is ready when the job has ended and its captures are destroyed; it
  // rethrows the job's exception. The job runs without recording gradients.
  std::future<void> Run(std::function<void()> job);

 private:
  void Loop(const std::vector<int>& cores);
  void End();

  std::promise<Status> started_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> jobs_;
  bool ends_ = false;
  std::thread thread_;  // declared last, because it uses the others
};

}  // namespace ds::zero
