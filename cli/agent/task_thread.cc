#include "cli/agent/task_thread.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "cli/host/deadlines.h"

namespace ds::cli {
namespace {

// After this time without a task, held-back output is shown.
constexpr std::chrono::milliseconds kQuietAfter{50};

}  // namespace

struct TaskThread::State {
  explicit State(Task quiet) : on_quiet(std::move(quiet)) {}
  void Loop();

  const Task on_quiet;
  mutable std::mutex mutex;         // guards all below
  std::condition_variable changed;  // any of them
  std::deque<Task> tasks;
  bool busy = false;  // with one that is not among tasks any more
  bool started = false;
  bool ending = false;
  bool given_up = false;
  bool dropped = false;  // some tasks since the last Flush
  std::uint64_t done = 0;
};

void TaskThread::State::Loop() {
  std::unique_lock lock(mutex);
  const auto has_work = [this] { return !tasks.empty() || ending; };
  for (bool is_quiet = true;;) {
    if (is_quiet) {
      changed.wait(lock, has_work);
    } else if (!changed.wait_for(lock, kQuietAfter, has_work)) {
      is_quiet = true;
      lock.unlock();
      on_quiet();
      lock.lock();
      continue;
    }
    if (tasks.empty()) return;
    Task task = std::move(tasks.front());
    tasks.pop_front();
    is_quiet = false;
    busy = true;
    lock.unlock();
    task();
    task = nullptr;  // frees its objects
    lock.lock();
    busy = false;
    ++done;
    if (tasks.empty()) changed.notify_all();
  }
}

TaskThread::TaskThread(Task on_quiet) : state_(std::make_unique<State>(std::move(on_quiet))) {}

TaskThread::~TaskThread() { End(); }

void TaskThread::End() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void TaskThread::Start() {
  thread_ = std::thread([this] { state_->Loop(); });
  const std::lock_guard lock(state_->mutex);
  state_->started = true;
}

void TaskThread::Put(Task task) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->started) {
      state_->tasks.push_back(std::move(task));
      if (state_->tasks.size() == 1) state_->changed.notify_all();
      return;
    }
  }
  task();
}

bool TaskThread::Flush() {
  std::unique_lock lock(state_->mutex);
  const auto is_idle = [this] { return state_->tasks.empty() && !state_->busy; };
  state_->changed.wait(lock, [&] { return state_->given_up || is_idle(); });
  const bool idle = state_->changed.wait_for(lock, deadlines::kWriteWhenGivenUp, is_idle);
  return !std::exchange(state_->dropped, false) && idle;
}

void TaskThread::GiveUp() {
  std::deque<Task> dropped;  // which let go of what they hold without the lock
  const std::lock_guard lock(state_->mutex);
  state_->given_up = true;
  state_->dropped = state_->dropped || !state_->tasks.empty();
  dropped.swap(state_->tasks);
  state_->changed.notify_all();
}

std::uint64_t TaskThread::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

}  // namespace ds::cli
