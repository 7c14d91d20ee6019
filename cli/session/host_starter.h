#pragma once

// HostStarter: a daemon on every host of a plan: a child on this machine, over SSH everywhere else,
// all at the same time. The daemons and their leases are its own.
//
// Daemons, certificates and leases go by the hosts' numbers (JobPlan::host).
//
// Threads: all on one; Interrupt from any. Nothing is started, and no thread either, for SSH's sake
// when all hosts are this machine.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/host/lease_keeper.h"
#include "cli/host/local_daemon.h"
#include "cli/job/job_plan.h"
#include "cli/job/spares.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/job_authority.h"
#include "runtime/base/status.h"

namespace ds::cli {

// StartedHosts tells what has come of a start. Where a host has failed the others are let go.
struct StartedHosts {
  std::vector<FailedHost> failed;
  std::vector<HostDaemon*> daemons;  // by node rank
  std::string master_addr;  // where the other hosts reach rank 0: the user's, where it is given
};

class HostStarter : public SpareStarter {
  struct RemoteHosts;

 public:
  // `plan` outlives it. `known_hosts` is where the job keeps the keys of hosts that nobody knew.
  HostStarter(const JobPlan* plan, std::filesystem::path known_hosts);
  ~HostStarter() override;

  using NoticeCallback = std::function<void(const std::string&)>;

  // Returns when all take calls, or it is known which do not; AwaitHosts waits for those that are
  // let go. What `notice` gets is for the user; it is called on this thread, and on StartSpare's.
  // An error Status: this machine is at fault, or what was asked.
  StatusOr<StartedHosts> StartHosts(NoticeCallback notice);
  // The user gives up: what is starting hosts, or ranks on them, returns as soon as it can, and
  // later attempts do at once. Their failures are not worth showing.
  void Interrupt();

  LeaseKeeper* leases() { return &leases_; }
  StatusOr<StartedSpare> StartSpare(int spare, int node_rank) override;
  // The job has ended: no daemon is needed any more.
  void ReleaseHosts();
  // Returns when the daemons of this machine have ended, as LocalDaemon::Close says.
  void AwaitHosts(const NoticeCallback& notice);
  // These two from any thread, while this one waits for something else.
  // Names the daemons of this machine that have not ended; false when there is none.
  bool TellOfHosts(const NoticeCallback& notice);
  // They end at once; false when all had ended.
  bool KillHosts();

 private:
  void Keep(int number, std::unique_ptr<HostDaemon> daemon);
  Status StartLocal(int number);
  // Over SSH; returns those that fail.
  StatusOr<std::vector<FailedHost>> StartRemote(const std::vector<int>& numbers);
  StatusOr<std::unique_ptr<RemoteHosts>> DescribeHosts(const std::vector<int>& numbers);
  std::string FindMasterAddress() const;

  const JobPlan* const plan_;
  const std::filesystem::path known_hosts_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds lease_;  // of the daemons of other hosts
  NoticeCallback notice_;
  std::optional<JobAuthority> authority_;  // with remote hosts only
  Interrupter interrupter_;
  std::vector<int> places_;             // by node rank: the number of the host there
  std::vector<std::string> addresses_;  // by number: where it was dialled; "" = this machine
  // By number; none for a spare that waits. Changes under mutex_.
  std::vector<std::unique_ptr<HostDaemon>> daemons_;
  LeaseKeeper leases_;  // of the daemons; goes before them
  std::mutex mutex_;
  std::vector<LocalDaemon*> local_;  // guarded by mutex_: among daemons_, those of this machine
};

}  // namespace ds::cli
