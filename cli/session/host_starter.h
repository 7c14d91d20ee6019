#pragma once

// HostStarter starts a daemon on every host of a plan, in parallel: a child process on this
// machine, over SSH elsewhere. It owns the daemons and their leases.
//
// Daemons, certificates and leases are indexed by the number of the daemon: the node rank, or the
// number of a replacement (job/spares.h).
//
// Not thread-safe, except Interrupt. If all hosts are this machine, it starts no thread and nothing
// for SSH.

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/host/daemon_client.h"
#include "cli/host/host_daemon.h"
#include "cli/host/lease_keeper.h"
#include "cli/host/local_daemon.h"
#include "cli/job/job_plan.h"
#include "cli/job/spares.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/job_authority.h"
#include "proto/agent.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The result of a start. If a host failed and spares cannot replace all that failed, the others are
// released.
struct StartedHosts {
  std::vector<FailedHost> failed;      // empty if spares can replace them: see absent_hosts
  std::map<int, HostDaemon*> daemons;  // by number; none of absent hosts
  std::string master_addr;  // address of rank 0 for the other hosts: the user's, if given
};

// Makes the authority of a job that has other hosts; null for one that has none. Keys are in this
// process from then on: no core file of it, and no other process of the user looks into it, nor
// into its forks. Other programs that it starts are not bound by that.
StatusOr<std::unique_ptr<JobAuthority>> MakeAuthority(const JobPlan& plan);

struct RemoteJob;
struct RemoteTarget;
struct StartedDaemon;

class HostStarter : public ReplacementStarter {
  struct RemoteHosts;

 public:
  // The caller keeps everything that pointers lead to.
  struct Options {
    const JobPlan* plan;
    std::filesystem::path known_hosts;  // the job's file for the keys of hosts that were unknown
    const JobAuthority* authority = nullptr;  // null: no host is remote
    int controller_fd = -1;                   // as in LocalDaemonOptions
    // Called by ReleaseHosts, to close the other end of controller_fd; may be null.
    std::function<void()> on_release = nullptr;
  };
  explicit HostStarter(Options options);
  ~HostStarter() override;

  using NoticeCallback = std::function<void(const std::string&)>;

  // Returns when all daemons accept calls, or when it is known which have failed; AwaitHosts waits
  // for the released ones. `notice` receives texts for the user, on this thread and on the thread
  // of StartReplacement. An error Status means that this machine or the request is at fault.
  StatusOr<StartedHosts> StartHosts(NoticeCallback notice);
  // Takes over the daemons that another process has started for the job, in place of StartHosts. A
  // daemon that has ended is replaced by one that answers no call.
  StatusOr<StartedHosts> AdoptHosts(const v1::JobState& state, NoticeCallback notice);
  // Adds the daemons of the places to the state.
  void Describe(v1::JobState* state);
  // Like StartHosts, but without a job: the hosts that did not fail keep their daemons, and no
  // spare counts.
  StatusOr<StartedHosts> StartReachableHosts(NoticeCallback notice);
  // Cancels: starts of hosts and of ranks return as soon as possible, and later ones at once. Their
  // failures are not worth showing.
  void Interrupt();

  LeaseKeeper* leases() { return &leases_; }
  StatusOr<StartedReplacement> StartReplacement(const Replacement& replacement) override;
  AbsentHosts absent_hosts() const override { return absent_; }
  // Releases all daemons, after the end of the job. Idempotent.
  void ReleaseHosts();
  // Blocks until the daemons of this machine have ended, like LocalDaemon::Close.
  void AwaitHosts(const NoticeCallback& notice);
  //
  // The next two functions are thread-safe, while this thread waits.
  //
  // Reports the daemons of this machine that have not ended to `notice`; returns false if there is
  // none.
  bool TellOfHosts(const NoticeCallback& notice);
  // Kills these daemons. Returns whether one has been killed, by this call or an earlier one.
  bool KillHosts();

 private:
  // Keeps the daemon, and renews its lease from now on.
  void Keep(int number, std::unique_ptr<HostDaemon> daemon);
  Status StartLocal(int number);
  void KeepLocal(int number, std::unique_ptr<LocalDaemon> daemon);
  void KeepWay(const v1::DaemonState& way);
  StatusOr<TlsOptions> MakeTlsOptions() const;
  void KeepRemote(const v1::DaemonState& way, TlsOptions tls, std::unique_ptr<RemoteTunnel> tunnel);
  // Starts the daemons of all places; returns the other hosts that failed, by node rank.
  // `on_local_failure` returns an error to end the start.
  StatusOr<std::map<int, FailedHost>> StartAll(
      const std::function<Status(const Replacement&, const Status&)>& on_local_failure);
  std::map<int, HostDaemon*> ListDaemons() const;  // by number
  // Reaches the daemons again that have these positions in the state, each through a tunnel of its
  // own. One that fails, or takes longer than the lease, is kept as it was: its host is lost.
  Status ReopenTunnels(const v1::JobState& state, const std::vector<int>& positions,
                       const TlsOptions& tls);
  // Starts daemons over SSH; returns the hosts that failed, by node rank.
  StatusOr<std::map<int, FailedHost>> StartRemote(const std::vector<Replacement>& places);
  StatusOr<RemoteTarget> MakeTarget(const Replacement& place) const;
  RemoteJob MakeRemoteJob() const;  // without the binary
  StatusOr<std::shared_ptr<RemoteHosts>> DescribeHosts(const std::vector<Replacement>& places);
  // Takes over the daemon that was started on the host with this index in `hosts`.
  void Accept(RemoteHosts* hosts, int index, StartedDaemon* started);
  std::string FindMasterAddress() const;

  const Options options_;
  const JobPlan* const plan_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds lease_;  // of the daemons of other hosts
  NoticeCallback notice_;
  const std::shared_ptr<Interrupter> interrupter_ = std::make_shared<Interrupter>();
  std::vector<Replacement> places_;  // by node rank: the present host
  AbsentHosts absent_;
  std::map<int, v1::DaemonState> ways_;  // to all daemons; modified under mutex_
  // By number. Modified under mutex_.
  std::map<int, std::unique_ptr<HostDaemon>> daemons_;
  LeaseKeeper leases_;  // of the daemons; destroyed before them
  bool released_ = false;
  std::mutex mutex_;
  std::vector<LocalDaemon*>
      local_;  // guarded by mutex_: the daemons of this machine, owned by daemons_
};

}  // namespace ds::cli
