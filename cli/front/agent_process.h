#pragma once

// AgentProcess is the agent of a job as a child of its first front: a process in a session of its
// own, without a terminal. Its standard error is agent.log in the run folder, which is removed at
// the end if it is empty.
//
// Not thread-safe, except Kill.

#include <string>

#include "cli/agent/agent.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class AgentProcess {
 public:
  // Forks this process, which must have no other thread. kResourceExhausted: there is no free
  // process.
  static StatusOr<AgentProcess> Start(const AgentJob& job);
  AgentProcess(AgentProcess&&) = default;
  AgentProcess& operator=(AgentProcess&&) = default;

  // The front's end of the connection.
  UniqueFd TakeConnection() { return std::move(connection_); }
  int pid() const { return pid_; }
  // Blocks until the agent has ended and says how: "process 123 was ended by signal 9".
  std::string AwaitEnd();
  // Sends SIGKILL to the daemons of this machine, which ends their ranks, and to the agent. For an
  // agent that does not react: it may be stopped, or hang on a file system.
  void Kill() const;

 private:
  AgentProcess() = default;

  int pid_ = -1;
  UniqueFd connection_;
};

}  // namespace ds::cli
