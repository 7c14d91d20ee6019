#pragma once

// Taking a daemon that waits for work on this host (`dsrund --serve`), instead of starting one.
//
// The daemon that is taken is the file that would have been started, runs as this user in the same
// groups, namespaces and control groups, and is made to have this process's environment, working
// directory, umask, limits, cpus and niceness (daemon/handover.h). Where anything does not fit, the
// answer is an error and the caller starts its own.
//
// Threads: safe to call concurrently, but for umask(2), which OfferJob sets for a moment.

#include <filesystem>
#include <optional>
#include <string>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/claim.h"
#include "runtime/process/port_lease.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// What a daemon is asked along with the job, instead of by its first calls.
struct JobOpening {
  v1::PrepareRequest prepare;
  // Then, unless the host fails a check: starts these ranks.
  std::optional<v1::LaunchRequest> launch = std::nullopt;
  std::optional<PortLease> port = std::nullopt;  // their master port, when the user has named none
};

struct WarmJob {
  std::filesystem::path dsrund;  // that would be started otherwise
  std::filesystem::path dsrank;  // empty: beside dsrund
  std::string job_id;
  int connection = -1;                  // that the daemon takes calls on; stays open here
  const JobOpening* opening = nullptr;  // null: nothing is asked
};

struct WarmOffer {
  UniqueFd lifeline;
  std::optional<Claim> launch;  // with an opening that launches
};

struct WarmDaemon {
  UniqueFd lifeline;  // its end tells each side that the other has gone
  std::filesystem::path folder;
  int pid = -1;
  std::optional<v1::PrepareResponse> prepared;  // none: Prepare, if asked, is refused
  std::optional<v1::LaunchResponse> launched;   // none: nothing runs
};

// Offers the job to a daemon that waits, which then looks at it while the caller does something
// else. To drop the offer takes it back, and stops what has been started. kNotFound when nobody
// serves here.
StatusOr<WarmOffer> OfferJob(const WarmJob& job);
// Waits for the answer. None: that daemon is not the right one, or silent; it will start nothing.
// kUnavailable when it has begun to start the ranks and is then not heard of.
StatusOr<std::optional<WarmDaemon>> TakeWarmDaemon(WarmOffer offer);

}  // namespace ds::cli
