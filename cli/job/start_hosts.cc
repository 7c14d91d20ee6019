#include "cli/job/start_hosts.h"

#include <future>
#include <utility>

#include "cli/job/job_certificates.h"
#include "cli/job/local_host.h"
#include "cli/job/network_host.h"
#include "cli/plan/rank_environment.h"
#include "cli/remote/daemon_binary.h"
#include "cli/remote/dial.h"
#include "cli/remote/fan_out.h"
#include "cli/remote/host_keys.h"
#include "cli/remote/remote_daemon.h"
#include "cli/remote/remote_target.h"
#include "proto/peer_name.h"

namespace ds::cli {
namespace {

// What the fan-out works on, by place in the list of remote hosts.
struct RemoteHosts {
  std::vector<RemoteTarget> targets;
  std::vector<Credentials> credentials;
  std::vector<StartedDaemon> started;
  Credentials controller;
};

StatusOr<RemoteHosts> DescribeHosts(const LaunchPlan& plan, const std::vector<int>& remote,
                                    const StartOptions& options) {
  RemoteHosts hosts;
  for (const int node : remote) {
    DS_ASSIGN_OR_RETURN(RemoteTarget target,
                        MakeRemoteTarget(plan.entries[node], options.ssh_port));
    target.node_rank = node;
    hosts.targets.push_back(std::move(target));
  }
  DS_ASSIGN_OR_RETURN(const JobAuthority authority, JobAuthority::Create(options.job_id));
  DS_ASSIGN_OR_RETURN(hosts.controller, authority.IssueController());
  for (const int node : remote) {
    DS_ASSIGN_OR_RETURN(Credentials credentials, authority.IssueDaemon(node));
    hosts.credentials.push_back(std::move(credentials));
  }
  hosts.started.resize(remote.size());
  return hosts;
}

// Where the other hosts reach rank 0. `first_remote` is the address of the first of them that is
// not this machine: the one dialled when rank 0 is there, else where this machine's own address is
// seen from.
std::string MasterAddress(const LaunchPlan& plan, const std::string& first_remote) {
  if (plan.entries.size() == 1) return DefaultMasterAddress(plan.world);
  if (!plan.here[0]) return first_remote;
  const auto own = plan.entries[0].keys.find("address");
  if (own != plan.entries[0].keys.end()) return own->second;
  const std::string local = LocalAddressTowards(first_remote);
  return local.empty() ? DefaultMasterAddress(plan.world) : local;
}

std::string ProgressText(const FanOutProgress& progress, const RemoteHosts& hosts) {
  std::string names;
  for (const int index : progress.waiting_for) {
    names += (names.empty() ? "" : ", ") + hosts.targets[index].name;
  }
  return "starting: " + std::to_string(progress.ready) + " of " + std::to_string(progress.total) +
         " hosts ready; waiting for " + names +
         (progress.ready + static_cast<int>(progress.waiting_for.size()) < progress.total
              ? " and others"
              : "");
}

}  // namespace

HostStarter::HostStarter(const LaunchPlan* plan, StartOptions options)
    : plan_(plan), options_(std::move(options)) {
  for (std::size_t node = 0; node < plan->entries.size(); ++node) {
    if (!plan->here[node]) remote_.push_back(static_cast<int>(node));
  }
  if (!remote_.empty()) interrupter_ = std::make_unique<Interrupter>();
}

HostStarter::~HostStarter() = default;

void HostStarter::Interrupt() {
  if (interrupter_ != nullptr) interrupter_->Interrupt();
}

StatusOr<StartedHosts> HostStarter::Run() {
  StartedHosts started;
  started.daemons.resize(plan_->entries.size());
  started.leases = std::make_unique<LeaseKeeper>(options_.lease);
  for (std::size_t node = 0; node < plan_->entries.size(); ++node) {
    if (!plan_->here[node]) continue;
    DS_ASSIGN_OR_RETURN(started.daemons[node], LocalHost::Start(options_.job_id));
  }
  started.master_addr = DefaultMasterAddress(plan_->world);
  if (remote_.empty()) return started;
  return StartRemote(std::move(started));
}

StatusOr<StartedHosts> HostStarter::StartRemote(StartedHosts result) {
  DS_ASSIGN_OR_RETURN(RemoteHosts hosts, DescribeHosts(*plan_, remote_, options_));
  HostKeys host_keys(options_.known_hosts);
  const RemoteJob job{.job_id = options_.job_id,
                      .timeout = options_.timeout,
                      .lease = options_.lease,
                      .binary = std::async(std::launch::async, ReadDaemonBinary).share(),
                      .host_keys = &host_keys,
                      .interrupter = interrupter_.get()};
  const auto start = [&](int index, Interrupter::Deadline deadline) {
    MaybeFailure failure = StartRemoteDaemon(hosts.targets[index], hosts.credentials[index], job,
                                             deadline, &hosts.started[index]);
    if (failure) return failure;
    const int node = remote_[index];
    const TlsOptions tls{.credentials = hosts.controller,
                         .daemon_name = ::dsrun::v1::DaemonPeerName(options_.job_id, node),
                         .lease = options_.lease};
    StartedDaemon& daemon = hosts.started[index];
    result.daemons[node] = std::make_unique<NetworkHost>(options_.job_id, daemon.target(), tls,
                                                         std::move(daemon.tunnel));
    // At once: its lease must last until the slowest host is ready.
    result.leases->Add(node, result.daemons[node].get());
    return failure;
  };
  const std::vector<MaybeFailure> failures = FanOut::Run(
      static_cast<int>(remote_.size()), {.timeout = options_.timeout}, interrupter_.get(), start,
      [&](const FanOutProgress& progress) { options_.notice(ProgressText(progress, hosts)); });
  for (std::size_t i = 0; i < remote_.size(); ++i) {
    if (failures[i]) {
      result.failed.push_back({hosts.targets[i].name, *failures[i]});
    } else if (!hosts.started[i].notice.empty()) {
      options_.notice("host " + hosts.targets[i].name + ": " + hosts.started[i].notice);
    }
  }
  if (result.failed.empty()) {
    result.master_addr = MasterAddress(*plan_, hosts.started[0].address);
  } else {
    result.leases->Release();
    result.daemons.clear();
  }
  return result;
}

}  // namespace ds::cli
