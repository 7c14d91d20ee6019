#pragma once

// Handover: how a daemon that waits for work (warm_pool.h) becomes the daemon of one job.
//
// It takes a job only from a controller whose own child it could be: the same user, the same dsrund
// file, the same groups, capabilities, namespaces, cgroup and seccomp state. Everything else that a
// child would inherit comes with the request and is applied: environment, working directory, umask,
// limits, cpus, niceness, standard error. A controller that is refused starts its own daemon.
//
// Along with the job comes what its controller asks first, so that ranks run before there is a
// connection to ask on. Who starts them has taken the job's claim: a controller that nobody answers
// takes it back and starts them elsewhere, so that none runs twice.
//
// Threads: the one that will start the ranks, before it runs its loop.

#include <optional>
#include <string>
#include <vector>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/claim.h"
#include "runtime/process/port_lease.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

struct TakenJob {
  UniqueFd connection;  // that takes calls
  UniqueFd controller;  // ends when the controller does, or needs this daemon no more
  UniqueFd process;     // readable when the controller's process has ended; may be invalid
  std::string job_id;
  std::string dsrank;                    // "" = beside dsrund
  std::vector<std::string> environment;  // "NAME=value"
  bool moved = false;  // this daemon is in other control groups than when it began to wait
  std::optional<v1::PrepareRequest> prepare;  // that the answer is to say something of
  struct Launch {
    v1::LaunchRequest request;
    Claim claim;  // whoever takes it starts the ranks
  };
  std::optional<Launch> launch;   // to be answered, too
  std::optional<PortLease> port;  // for their rendezvous
};

struct HandoverPlaces {
  int listener = -1;  // where controllers connect
  int owner = -1;     // its end means that nobody will come: the pool has ended
};

// Waits for a controller that this daemon fits and applies what it says. The controller waits for
// ConfirmJob. kCancelled when the pool has ended.
StatusOr<TakenJob> AwaitJob(const HandoverPlaces& places);

struct Confirmation {
  std::string folder;  // this daemon's own
  std::optional<v1::PrepareResponse> prepared;
  std::optional<v1::LaunchResponse> launched;
};
Status ConfirmJob(int controller, Confirmation confirmation);

}  // namespace ds::daemon
