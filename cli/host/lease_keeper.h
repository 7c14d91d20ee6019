#pragma once

// LeaseKeeper: renews the leases of all hosts of a job from one thread, as long as the job lives,
// and says how each host is, as LeaseTable decides.
//
// Hosts are added as they become ready, so that the first does not run out of its lease while the
// last is still being reached. This machine's daemon lives by a pipe, but is asked and graded like
// the others. A lost host stays lost: its lease is not renewed any more, so that its ranks end.
//
// Threads: all members from any. `on_change` is called on the keeper's thread, one call at a time.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "cli/host/host_daemon.h"
#include "cli/host/lease_table.h"
#include "cli/host/own_pauses.h"

namespace ds::cli {

class LeaseKeeper {
 public:
  using OnChange = std::function<void(const HostChange&)>;
  using ClocksCallback = std::function<OwnPauses::Clocks()>;

  // `lease` is what the daemons were started with. Silence and standstills are told by `clocks`,
  // from several threads; null: by those of this machine.
  explicit LeaseKeeper(std::chrono::nanoseconds lease, ClocksCallback clocks = nullptr);
  // Releases the daemons when that has not been done.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // Renews from now on the lease of `daemon`, which outlives the keeper.
  // `number` is among the hosts of the job; no two daemons have the same.
  void Add(int number, HostDaemon* daemon);
  // Names the one who is told of changes; what has changed before is told soon after.
  void Listen(OnChange on_change);
  // The last time, not long ago, in which this process did not run for so much of a lease that
  // hosts may have ended their ranks because of it; none: there was no such time.
  std::optional<OwnPause> FindOwnPause() const;
  // The job needs its daemons no more: tells all that are not lost to end, at once, and waits for
  // their answers for a moment. Nothing is renewed afterwards and nobody told.
  void Release();

 private:
  struct State;  // shared with renewals on their way

  const std::shared_ptr<State> state_;
};

}  // namespace ds::cli
