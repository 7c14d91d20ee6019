#include "runtime/comm/shm/call_queue.h"

#include <exception>
#include <future>
#include <new>
#include <string>
#include <utility>

namespace ds::comm {
namespace {

// Runs the call and returns its status. An exception would end the process on the queue's thread,
// so it becomes an error.
Status CallSafely(const CallQueue::Call& call, CpuGroup& group) {
  try {
    return call(group);
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError(group.NameOf(group.rank()) + " has no memory for a collective");
  } catch (const std::exception& error) {
    return InternalError(group.NameOf(group.rank()) + " failed in a collective: " + error.what());
  }
}

}  // namespace

CallQueue::~CallQueue() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  const bool is_busy = !entries_.empty();
  changed_.notify_all();
  lock.unlock();
  if (is_busy) group_->Abort(group_->NameOf(group_->rank()) + " left with calls under way");
}

Status CallQueue::Run(const Call& call) {
  std::unique_lock lock(mutex_);
  if (entries_.empty()) {
    if (!failure_.ok()) return failure_;
    lock.unlock();
    return RunNow(call);
  }
  lock.unlock();
  std::promise<Status> ended;
  Post(call, [&](const Status& status) { ended.set_value(status); });
  return ended.get_future().get();
}

Status CallQueue::RunNow(const Call& call) {
  const Status status = CallSafely(call, *group_);
  if (status.ok()) return status;
  group_->Abort(status.message());
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
  return failure_;
}

void CallQueue::Post(Call call, Done done) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({std::move(call), std::move(done)});
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::jthread([this] { RunPosted(); });
}

void CallQueue::RunPosted() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !entries_.empty(); });
    if (entries_.empty()) return;
    if (ending_ && failure_.ok()) failure_ = UnavailableError("its group was left before it ran");
    Entry& entry = entries_.front();
    Status status = failure_;
    lock.unlock();
    if (status.ok()) status = RunNow(entry.call);
    entry.call = nullptr;  // frees its tensors before `done` is called
    const Done done = std::move(entry.done);
    // Remove the entry first: `done` must not find the call pending.
    lock.lock();
    entries_.pop_front();
    lock.unlock();
    done(status);
    lock.lock();
  }
}

}  // namespace ds::comm
