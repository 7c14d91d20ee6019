#pragma once

// CallQueue: runs the calls of one group in the order in which they were issued. A thread runs
// posted calls; the first Post starts it. Run executes a call on the caller's thread if the queue
// is empty.
//
// Errors: a call that throws counts as failed. After the first failure no further call runs: all
// calls return that error, and the group is aborted with it, so that the other ranks receive it
// too. Threads: one thread issues calls. `done` runs on the queue's thread or on the thread that
// destroys the queue. The group must outlive the queue. Destroying the queue while calls are
// pending ends the group; `done` of calls that have not run gets an error.

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

  // Runs the call after the queued calls and returns when it has ended.
  Status Run(const Call& call);
  // Returns at once. `call` is destroyed before `done` is called.
  void Post(Call call, Done done);

 private:
  struct Entry {
    Call call;
    Done done;
  };
  Status RunNow(const Call& call);
  void RunPosted();

  CpuGroup* group_;
  std::mutex mutex_;  // guards all members below except thread_
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // the first entry is running
  Status failure_;             // the first failure
  bool ending_ = false;
  std::jthread thread_;
};

}  // namespace ds::comm
