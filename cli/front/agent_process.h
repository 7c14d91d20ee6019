#pragma once

// AgentProcess is the guardian of a job's agent (cli/agent/agent_guardian.h) as a child of the
// first front.
//
// Not thread-safe, except Kill.

#include <string>

#include "cli/agent/agent.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/unix_socket.h"

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
  // Blocks until another agent has taken over the job, and returns the front's end of its
  // connection. kUnavailable: there is none.
  StatusOr<UniqueFd> AwaitSuccessor() const { return ReceiveDescriptor(handover_.get()); }
  // Blocks until the last agent has ended and says how: "process 123 was ended by signal 9".
  std::string AwaitEnd();
  // Sends SIGKILL to the daemons of this machine, which ends their ranks, to the agent and to its
  // guardian. For an agent that does not react: it may be stopped, or hang on a file system.
  void Kill() const;

 private:
  AgentProcess() = default;

  int pid_ = -1;
  UniqueFd connection_;
  UniqueFd handover_;
};

}  // namespace ds::cli
