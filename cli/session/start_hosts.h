#pragma once

// HostStarter: a daemon on every host of a plan: a child on this machine, over SSH everywhere else,
// all at the same time.
//
// Daemons, certificates and leases go by the hosts' numbers (JobPlan::host).
//
// Threads: Run on one; Interrupt from any. Nothing is started, and no thread either, for SSH's sake
// when all hosts are this machine.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/host/lease_keeper.h"
#include "cli/job/job_plan.h"
#include "cli/job/spares.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/job_authority.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct StartedHosts {
  std::vector<std::unique_ptr<HostDaemon>> daemons;  // by number of the host; empty after failures
  std::unique_ptr<LeaseKeeper> leases;               // of the daemons; goes before them
  std::vector<FailedHost> failed;
  std::string master_addr;  // where rank 0's host is reached by the others
};

class HostStarter {
  struct RemoteHosts;

 public:
  // `plan` outlives it. `known_hosts` is where the job keeps the keys of hosts that nobody knew.
  HostStarter(const JobPlan* plan, std::filesystem::path known_hosts);
  ~HostStarter();

  using NoticeCallback = std::function<void(const std::string&)>;

  // Returns when all take calls, or it is known which do not. What `notice` gets is for the user;
  // it is called on this thread, and on StartSpare's. An error Status: this machine is at fault, or
  // what was asked.
  StatusOr<StartedHosts> Run(NoticeCallback notice);
  // Afterwards: one on a spare of the plan, in the place of host `node_rank`.
  StatusOr<StartedSpare> StartSpare(int spare, int node_rank, StartedHosts* started);
  // The user gives up: Run returns as soon as it can. Its failures are not worth showing.
  void Interrupt();

 private:
  // Over SSH; what fails goes to `started->failed`.
  Status StartRemote(const std::vector<int>& numbers, StartedHosts* started);
  StatusOr<std::unique_ptr<RemoteHosts>> DescribeHosts(const std::vector<int>& numbers);
  // The address at which the other hosts reach rank 0.
  std::string MasterAddress() const;

  const JobPlan* const plan_;
  const std::filesystem::path known_hosts_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds lease_;  // of the daemons of other hosts
  NoticeCallback notice_;
  std::optional<JobAuthority> authority_;  // with remote hosts only, as this:
  std::unique_ptr<Interrupter> interrupter_;
  std::vector<int> places_;             // by node rank: the number of the host there
  std::vector<std::string> addresses_;  // by number: where it was dialled; "" = this machine
};

}  // namespace ds::cli
