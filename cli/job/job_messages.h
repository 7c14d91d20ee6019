#pragma once

// JobInput is an event for a job's state machine (job_machine.h), JobAction a command from it.
// Hosts are identified by the number of their daemon: the node rank at first. The daemon of a
// replacement has a number of its own (Replacement::number).

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

// UserStop has changed, or SIGUSR1 or SIGUSR2 is to be forwarded to the ranks.
struct UserSignal {
  int number = 0;
};
// The response to a request of this generation.
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
// A lost host has been given up.
struct HostGone {
  int host = 0;
  std::optional<std::chrono::nanoseconds> lease_from;  // HostDaemon::LeaseFrom, if it has a lease
};
// The result of StartReplacement.
struct ReplacementAnswer {
  int host = 0;
  StatusOr<StartedReplacement> answer;
};

// The result of AskProgram.
struct ProgramAnswer {
  int generation = 0;
  StatusOr<RankProgram> program;
};

// No event; only due actions are handled, as after every input.
struct TimePassed {};

using JobInput = std::variant<TimePassed, UserSignal, HostChange, Answer<v1::PrepareResponse>,
                              Answer<v1::LaunchResponse>, Answer<v1::StopResponse>,
                              Answer<v1::SignalResponse>, Answer<v1::ShareResponse>, HostEvents,
                              StreamEnd, HostGone, ReplacementAnswer, ProgramAnswer>;

// Actions that are not a request to the host's daemon.
struct WatchHost {     // results: HostEvents and one StreamEnd
  bool again = false;  // as in v1::WatchRequest
};
struct AbandonHost {};   // ends its calls in progress; result: StreamEnd
struct GiveHostUp {      // permanently, and waits for its processes; result: HostGone
  bool release = false;  // its daemon responds and has no ranks: it is to end
};
struct StartReplacement {  // result: ReplacementAnswer
  Replacement replacement;
};
struct AskProgram {};    // Program::ForGeneration, which may take minutes; result: ProgramAnswer
struct ForwardInput {};  // begins the forwarding that the Launch of the host has announced
struct EndInput {};

struct JobAction {
  int host = 0;
  int generation = 0;
  std::variant<v1::PrepareRequest, v1::LaunchRequest, v1::StopRequest, v1::SignalRequest,
               v1::ShareRequest, WatchHost, AbandonHost, GiveHostUp, StartReplacement, AskProgram,
               ForwardInput, EndInput>
      what;
};
using JobActions = std::vector<JobAction>;

}  // namespace ds::cli
