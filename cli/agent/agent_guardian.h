#pragma once

// The guardian of an agent is its parent process. If the agent is killed while ranks run, the
// guardian starts another one, which takes over the job: the ranks notice nothing, and no line of
// output is lost or doubled. Both are forks of the first front and have its plan and program. What
// an agent leaves to its successor is in AgentMemory.
//
// The guardian holds an end of the pipe that binds the daemons of this machine, so that they end
// their ranks when both it and the agent are gone. Daemons of other hosts wait some seconds for the
// next connection. It holds no other resources and does nothing else.

#include "cli/agent/agent.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

struct GuardianChannels {
  UniqueFd first_front;  // the agent's end of the connection to the first front
  UniqueFd handover;     // socket on which the first front receives its end of the next ones
};

// Runs the job in an agent, in a session of its own without a terminal, and ends this process as
// the last agent has ended. Standard error becomes agent.log in the run folder, which is removed at
// the end if it is empty. Call it in a fork without other threads.
[[noreturn]] void RunGuardian(const AgentJob& job, GuardianChannels channels);

}  // namespace ds::cli
