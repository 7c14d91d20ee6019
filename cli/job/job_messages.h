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
#include "cli/job/spares.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// The user wants something: stop_ has changed, or SIGUSR1 or SIGUSR2 is for the ranks.
struct UserSignal {
  int number = 0;
};
struct PrepareAnswer {
  int host = 0;
  StatusOr<v1::PrepareResponse> answer;
};
// The answer to a Launch, a Stop, a Signal or a Share of this generation.
enum class CallKind { kLaunch, kStop, kSignal, kShare };
struct CallAnswer {
  int host = 0;
  int generation = 0;
  CallKind kind = CallKind::kLaunch;
  Status status;
  int call = 0;  // as JobAction::call
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
// Rank 0's standard input waits to be forwarded, or cannot be.
struct InputAnswer {
  int generation = 0;
  Status status;
};

using JobInput = std::variant<UserSignal, HostChange, PrepareAnswer, CallAnswer, HostEvents,
                              StreamEnd, HostGone, SpareAnswer, InputAnswer>;

struct JobAction {
  enum class Kind {
    kPrepare,
    kLaunch,
    kWatch,
    kStop,
    kSignal,
    kShare,
    kAbandon,       // what goes on with the host ends, which its stream tells
    kGiveUp,        // for good, and its processes are waited for; HostGone follows
    kStartSpare,    // SpareAnswer follows
    kAwaitInput,    // InputAnswer follows
    kForwardInput,  // from now on
    kEndInput,
  };
  Kind kind{};
  int host = 0;
  int node_rank = 0;  // the host's, or that of the one which the spare replaces
  int spare = 0;      // its place among JobPlan::spares
  int generation = 0;
  int call = 0;  // tells answers to calls of one kind apart
  std::variant<std::monostate, v1::PrepareRequest, v1::LaunchRequest, v1::StopRequest,
               v1::SignalRequest, v1::ShareRequest>
      request = {};
};
using JobActions = std::vector<JobAction>;

}  // namespace ds::cli
