#include "daemon/loop/worker.h"

#include <system_error>
#include <thread>

namespace ds::daemon {

struct Worker::State {
  void Run();

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;  // guarded by mutex, like all below
  std::string step;
  bool started = false;
  bool ended = false;
};

void Worker::State::Run() {
  const TellStep tell = [this](const std::string& text) {
    const std::lock_guard lock(mutex);
    step = text;
  };
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return ended || !tasks.empty(); });
      if (ended) return;
      task = std::move(tasks.front());
      tasks.pop_front();
    }
    task(tell);
  }
}

Worker::Worker() : state_(std::make_shared<State>()) {}

Worker::~Worker() {
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
  state_->changed.notify_all();
}

Status Worker::Post(Task task) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->started) {
    try {
      std::thread([state = state_] { state->Run(); }).detach();
    } catch (const std::system_error&) {
      return Status(StatusCode::kResourceExhausted, "no thread may be started (ulimit -u)");
    }
    state_->started = true;
  }
  state_->tasks.push_back(std::move(task));
  state_->changed.notify_all();
  return OkStatus();
}

std::string Worker::step() const {
  const std::lock_guard lock(state_->mutex);
  return state_->step;
}

}  // namespace ds::daemon
