#pragma once

// CallQueue: the calls of one group, in the order in which they were issued. A thread runs what was
// posted; it is started by the first of those. What is run while nothing is queued stays on its
// caller's thread.
//
// Errors: a call that throws has failed. After a call that has failed none runs any more: all say
// the first error, and the group is aborted with it, so that the other ranks learn it too. Threads:
// one issues calls; Status values reach `done` on the queue's thread or its destroyer's. Lifetimes:
// the group outlives the queue. Who destroys the queue while calls are under way ends the group;
// `done` of what has not run gets an error.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/base/status.h"
#include "runtime/comm/shm/cpu_group.h"

namespace ds::comm {

class CallQueue {
 public:
  using Call = std::function<Status(CpuGroup&)>;
  using Done = std::function<void(const Status&)>;

  explicit CallQueue(CpuGroup* group) : group_(group) {}
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Runs the call behind what is queued, and returns when it has ended.
  Status Run(const Call& call);
  // Returns at once. `call` is gone when `done` is called.
  void Post(Call call, Done done);

 private:
  struct Entry {
    Call call;
    Done done;
  };
  Status RunNow(const Call& call);
  void RunPosted();

  CpuGroup* group_;
  std::mutex mutex_;  // guards all below but thread_
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // the first one is under way
  Status failure_;             // the first
  bool ending_ = false;
  std::jthread thread_;
};

}  // namespace ds::comm
