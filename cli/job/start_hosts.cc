#include "cli/job/start_hosts.h"

#include <future>
#include <utility>

#include "cli/job/job_certificates.h"
#include "cli/job/local_host.h"
#include "cli/plan/rank_environment.h"
#include "cli/remote/daemon_binary.h"
#include "cli/remote/dial.h"
#include "cli/remote/fan_out.h"
#include "cli/remote/host_keys.h"
#include "cli/remote/remote_daemon.h"
#include "cli/remote/remote_host.h"
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
  DS_ASSIGN_OR_RETURN(const DaemonBinary binary, ReadDaemonBinary());
  HostKeys host_keys(options_.known_hosts);
  const RemoteJob job{.job_id = options_.job_id,
                      .timeout = options_.timeout,
                      .lease = options_.lease,
                      .binary = &binary,
                      .host_keys = &host_keys,
                      .interrupter = interrupter_.get()};
  const std::vector<MaybeFailure> failures = FanOut::Run(
      static_cast<int>(remote_.size()), {.timeout = options_.timeout}, interrupter_.get(),
      [&](int index, Interrupter::Deadline deadline) {
        MaybeFailure failure = StartRemoteDaemon(hosts.targets[index], hosts.credentials[index],
                                                 job, deadline, &hosts.started[index]);
        if (failure) return failure;
        const int node = remote_[index];
        const TlsOptions tls{.credentials = hosts.controller,
                             .daemon_name = ::dsrun::v1::DaemonPeerName(options_.job_id, node),
                             .lease = options_.lease};
        result.daemons[node] =
            std::make_unique<RemoteHost>(options_.job_id, hosts.started[index], tls);
        // At once: its lease must last until the slowest host is ready.
        result.leases->Add(node, result.daemons[node].get());
        return failure;
      },
      [&](const FanOutProgress& progress) { options_.notice(ProgressText(progress, hosts)); });
  for (std::size_t i = 0; i < remote_.size(); ++i) {
    if (failures[i]) {
      result.failed.push_back({hosts.targets[i].name, *failures[i]});
      continue;
    }
    const StartedDaemon& daemon = hosts.started[i];
    if (!daemon.notice.empty()) {
      options_.notice("host " + hosts.targets[i].name + ": " + daemon.notice);
    }
  }
  if (!result.failed.empty()) {
    result.leases->Release();
    result.daemons.clear();
  } else if (plan_->here[0]) {
    const auto own = plan_->entries[0].keys.find("address");
    const std::string local = LocalAddressTowards(hosts.started[0].address);
    if (own != plan_->entries[0].keys.end()) {
      result.master_addr = own->second;
    } else if (!local.empty()) {
      result.master_addr = local;
    }
  } else if (plan_->entries.size() > 1) {
    result.master_addr = hosts.started[0].address;
  }
  return result;
}

}  // namespace ds::cli
