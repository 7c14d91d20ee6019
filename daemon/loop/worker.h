#pragma once

// Worker runs tasks that may wait for a file system, one after another, on a thread of its own.
// Whoever needs a result waits until a deadline, and the loop waits for none.
//
// A task that hangs keeps the thread: later ones time out, and name its step. The thread
// starts with the first task. It is never joined, because it may hang for ever.
//
// Thread-safe.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/base/status.h"

namespace ds::daemon {

class Worker {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // Receives the step that a task begins: "looking for program x on nfs4".
  using TellStep = std::function<void(const std::string&)>;

  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs `task` and waits for its result until the deadline. Then it returns kDeadlineExceeded,
  // with the latest step of the task that hangs as the message. The task still runs and must own
  // its data. kResourceExhausted: there is no thread.
  template <typename Result>
  StatusOr<Result> Run(std::function<Result(const TellStep&)> task, Deadline deadline) {
    auto promise = std::make_shared<std::promise<Result>>();
    std::future<Result> result = promise->get_future();
    DS_RETURN_IF_ERROR(Post([promise, task = std::move(task)](const TellStep& tell) {
      promise->set_value(task(tell));
    }));
    if (result.wait_until(deadline) == std::future_status::ready) return result.get();
    return DeadlineExceededError(step());
  }

 private:
  using Task = std::function<void(const TellStep&)>;
  struct State;  // shared with the thread

  Status Post(Task task);
  std::string step() const;

  const std::shared_ptr<State> state_;
};

}  // namespace ds::daemon
