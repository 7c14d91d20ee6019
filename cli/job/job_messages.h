#pragma once

// JobInput is what a job's state machine (job_machine.h) hears, JobAction what it wants done. Hosts
// go by their numbers (JobPlan::host), which a spare does not take over from the host that it
// replaces.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/host/lease_table.h"
#include "cli/job/program.h"
#include "cli/job/spares.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// The user wants something: stop_ has changed, or SIGUSR1 or SIGUSR2 is for the ranks.
struct UserSignal {
  int number = 0;
};
// To a request of this generation.
template <typename Response>
struct Answer {
  int host = 0;
  int generation = 0;
  StatusOr<Response> answer;
};
struct HostEvents {
  int host = 0;
  int generation = 0;
  std::shared_ptr<const v1::EventBatch> batch;
};
struct StreamEnd {
  int host = 0;
  int generation = 0;
  Status status;
};
// A lost host was given up.
struct HostGone {
  int host = 0;
  std::optional<std::chrono::nanoseconds> lease_from;  // HostDaemon::LeaseFrom, if it has a lease
};
struct SpareAnswer {
  int host = 0;
  StatusOr<StartedSpare> answer;
};

// AskProgram has come to this.
struct ProgramAnswer {
  int generation = 0;
  StatusOr<RankProgram> program;
};

// Nothing was heard: what is due is done with every input, and so with this one.
struct TimePassed {};

using JobInput = std::variant<TimePassed, UserSignal, HostChange, Answer<v1::PrepareResponse>,
                              Answer<v1::LaunchResponse>, Answer<v1::StopResponse>,
                              Answer<v1::SignalResponse>, Answer<v1::ShareResponse>, HostEvents,
                              StreamEnd, HostGone, SpareAnswer, ProgramAnswer>;

// Actions that are no request to the host's daemon.
struct WatchHost {};    // HostEvents and a StreamEnd follow
struct AbandonHost {};  // what goes on with it ends, which its stream tells
struct GiveHostUp {};   // for good, and its processes are waited for; HostGone follows
struct StartSpare {     // SpareAnswer follows
  int spare = 0;        // its place among JobPlan::spares
  int node_rank = 0;    // of the host which it replaces
};
struct AskProgram {};  // Program::ForGeneration, which may read for minutes; ProgramAnswer follows
struct ForwardInput {};  // from now on, as the Launch of its host has announced
struct EndInput {};

struct JobAction {
  int host = 0;
  int generation = 0;
  std::variant<v1::PrepareRequest, v1::LaunchRequest, v1::StopRequest, v1::SignalRequest,
               v1::ShareRequest, WatchHost, AbandonHost, GiveHostUp, StartSpare, AskProgram,
               ForwardInput, EndInput>
      what;
};
using JobActions = std::vector<JobAction>;

}  // namespace ds::cli
