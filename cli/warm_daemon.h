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

namespace ds::cli {

namespace v1 = ::dsrun::v1;

struct WarmJob {
  std::filesystem::path dsrund;  // that would be started otherwise
  std::filesystem::path dsrank;  // empty: beside dsrund
  std::string job_id;
  int connection = -1;  // that the daemon takes calls on; stays open here
  std::optional<v1::PrepareRequest> prepare = std::nullopt;  // asked along with it
};

struct WarmDaemon {
  UniqueFd lifeline;  // its end tells each side that the other has gone
  std::filesystem::path folder;
  int pid = -1;
  std::optional<v1::PrepareResponse> prepared;  // none: Prepare, if asked, is refused
};

// Offers the job to a daemon that waits, which then looks at it while the caller does something
// else. The descriptor is for TakeWarmDaemon; to close it takes the offer back. kNotFound when
// nobody serves here.
StatusOr<UniqueFd> OfferJob(const WarmJob& job);
// Waits for the answer. kFailedPrecondition when that daemon is not the right one.
StatusOr<WarmDaemon> TakeWarmDaemon(UniqueFd offer);

}  // namespace ds::cli
