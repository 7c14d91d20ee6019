#pragma once

// RunAgent runs a planned job in the process of its agent: daemons, signals, verdict, run
// directory. What happens is published to the fronts (front_server.h).

#include <functional>
#include <memory>
#include <string>

#include "cli/agent/agent_memory.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/run_directory.h"
#include "cli/session/host_starter.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/pipe.h"

namespace ds::cli {

struct AgentJob {
  const JobPlan& plan;
  const Program& program;
  RunDirectory* run_directory;  // already contains the job's description
  bool reads_input = false;     // rank 0 gets the first front's standard input
  // Called after the verdict with whether the job failed; may be null. Returns a text for the user.
  std::function<std::string(bool failed)> after = nullptr;
};

// AgentMeans belongs to all agents of a job. Their guardian makes it (agent_guardian.h).
struct AgentMeans {
  static StatusOr<AgentMeans> Make(const JobPlan& plan);

  AgentMemory memory;
  Pipe controller;                          // binds the daemons of this machine
  std::unique_ptr<JobAuthority> authority;  // null: no host is remote
  UniqueFd released = {};  // pipe to the guardian: the agent has released the daemons
  int killed_by = 0;       // signal that ended the agent whose job is to be taken over; 0 = none
};

// Runs the job to its end and calls `exit` with the exit status of dsrun. `exit` ends the process:
// a thread of the job may be blocked in a file system that hangs, and cannot be joined.
// `first_front` is the connection of the process that started the job. Call it once, before this
// process has another thread.
void RunAgent(const AgentJob& job, AgentMeans* means, UniqueFd first_front,
              const std::function<void(int)>& exit);

}  // namespace ds::cli
