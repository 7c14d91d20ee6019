#pragma once

// LeaseKeeper renews the leases of all hosts of a job from one thread during the job, and reports
// the state of each host, as LeaseTable determines it.
//
// Hosts are added as they become ready, so that the first lease does not expire while the last host
// is still being reached. This machine's daemon has a pipe instead of a lease, but is renewed and
// graded like the others. A lost host stays lost: its lease is no longer renewed, so that its ranks
// end.
//
// A thread of its own probes the port of each lost host, so that the renewals of the others do not
// wait for it.
//
// Thread-safe. `on_change` runs on the keeper's thread, one call at a time, and on the threads of
// the probes.

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

  // `lease` is the lease of the daemons. `clocks` measures silence and pauses, and is called from
  // several threads; null: this machine's clocks.
  explicit LeaseKeeper(std::chrono::nanoseconds lease, ClocksCallback clocks = nullptr);
  // Releases the daemons unless Release was called.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // Renews the lease of `daemon` from now on; the daemon must outlive the keeper. `number` is the
  // number of the host in the job and must be unique.
  void Add(int number, HostDaemon* daemon);
  // Sets the callback for changes. It receives earlier changes soon after.
  void Listen(OnChange on_change);
  // Returns the last recent time in which this process did not run for so large a part of a lease
  // that hosts may have ended their ranks because of it; nullopt if there was none. With the number
  // of a host, it need not be recent, but may have cost the lease of that host.
  std::optional<OwnPause> FindOwnPause(std::optional<int> number) const;
  // Tells all daemons that are not lost to end, and waits a moment for their responses. Afterwards
  // no lease is renewed and no callback runs.
  void Release();

 private:
  struct State;  // shared with renewals in progress

  const std::shared_ptr<State> state_;
};

}  // namespace ds::cli
