#pragma once

// TaskThread: does what it is given, in order, on a thread of its own, so that who gives it never
// waits for a file system that hangs. Before Start, and where there is no Start, tasks are done in
// place.
//
// There is no bound of its own: of what is large a task holds the batch of events that its host's
// next one waits for (HostDaemon::WatchCallbacks), so that there is one for each host.
//
// Threads: all but Start from any.

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace ds::cli {

class TaskThread {
 public:
  using Task = std::function<void()>;

  // `on_quiet` is done there, too, when there has been nothing to do for a moment.
  explicit TaskThread(Task on_quiet);
  ~TaskThread();  // ends it
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Throws std::system_error where the machine has no more threads.
  void Start();
  void Put(Task task);
  // Returns when all that was put has been done; false when some of it since the last call was
  // given up, or is not done in a moment then.
  bool Flush();
  // Drops what has not begun. Nobody waits for long for what is put later.
  void GiveUp();
  // Does first what it was given, and waits for its end; nothing is put later.
  void End();
  // Has grown when a task has been done since.
  std::uint64_t done() const;

 private:
  struct State;

  const std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace ds::cli
