#pragma once

// TaskThread runs tasks in order on its own thread, so that the caller never blocks on a file
// system that hangs. Before Start, or without it, Put runs a task in place.
//
// The queue has no limit of its own. The large objects are batches of events, and a host sends the
// next batch only after its previous one is released (HostDaemon::WatchCallbacks), so there is one
// per host.
//
// Thread-safe, except Start.

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace ds::cli {

class TaskThread {
 public:
  using Task = std::function<void()>;

  // The thread also calls `on_quiet` when there has been no task for a moment.
  explicit TaskThread(Task on_quiet);
  ~TaskThread();  // calls End
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Throws std::system_error if the machine has no free thread.
  void Start();
  void Put(Task task);
  // Blocks until all tasks are done. Returns false if some tasks since the last call were dropped,
  // or, after GiveUp, are not done within a moment.
  bool Flush();
  // Drops the tasks that have not begun. Later waits are short.
  void GiveUp();
  // Finishes all tasks and ends the thread. No Put may follow.
  void End();
  // Returns a counter of finished tasks.
  std::uint64_t done() const;

 private:
  struct State;

  const std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace ds::cli
