#include "cli/session/host_starter.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <thread>
#include <utility>

#include "cli/job/job_moment.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/remote/daemon_binary.h"
#include "cli/remote/dial.h"
#include "cli/remote/fan_out.h"
#include "cli/remote/host_keys.h"
#include "cli/remote/job_authority.h"
#include "cli/remote/remote_daemon.h"
#include "cli/remote/remote_target.h"
#include "proto/peer_name.h"

namespace ds::cli {
namespace {

std::string ProgressText(const std::string& doing, const FanOutProgress& progress,
                         const std::vector<RemoteTarget>& targets) {
  std::string names;
  for (const int index : progress.waiting_for) {
    names += (names.empty() ? "" : ", ") + targets[index].name;
  }
  return doing + ": " + std::to_string(progress.ready) + " of " + std::to_string(progress.total) +
         " hosts ready; waiting for " + names +
         (progress.ready + static_cast<int>(progress.waiting_for.size()) < progress.total
              ? " and others"
              : "");
}

std::chrono::milliseconds FromSeconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

// Reads dsrund on a thread that nobody waits for, because its file system may hang. (The future of
// std::async waits.)
std::shared_future<StatusOr<DaemonBinary>> ReadInBackground() {
  std::packaged_task<StatusOr<DaemonBinary>()> read(ReadDaemonBinary);
  std::shared_future<StatusOr<DaemonBinary>> binary = read.get_future().share();
  std::thread(std::move(read)).detach();
  return binary;
}

// A daemon that has ended while no process held a connection to it.
class EndedDaemon : public HostDaemon {
 public:
  EndedDaemon(const Status& why, int guardian)
      : why_(UnavailableError("the daemon of this machine: " + why.message())),
        guardian_(guardian) {}
  void AwaitProcesses(const NoticeCallback& /*notice*/) override {
    LocalDaemon::AwaitGuardianOfEnded(guardian_);
  }
  void Begin(const v1::PrepareRequest&, AnswerCallback<v1::PrepareResponse> done) override {
    done(why_);
  }
  void Begin(const v1::LaunchRequest&, AnswerCallback<v1::LaunchResponse> done) override {
    done(why_);
  }
  void Begin(const v1::StopRequest&, AnswerCallback<v1::StopResponse> done) override { done(why_); }
  void Begin(const v1::SignalRequest&, AnswerCallback<v1::SignalResponse> done) override {
    done(why_);
  }
  void Begin(const v1::ShareRequest&, AnswerCallback<v1::ShareResponse> done) override {
    done(why_);
  }
  void Begin(const v1::InspectRequest&, AnswerCallback<v1::InspectResponse> done) override {
    done(why_);
  }
  StatusOr<v1::InputResponse> Input(const v1::InputRequest&) override { return why_; }
  void BeginWatch(const WatchedGeneration&, WatchCallbacks callbacks) override {
    callbacks.on_end(why_);
  }

 private:
  const Status why_;
  const int guardian_;
};

}  // namespace

StatusOr<std::unique_ptr<JobAuthority>> MakeAuthority(const JobPlan& plan) {
  bool any = false;
  for (int i = 0; i < plan.host_count(); ++i) any = any || plan.host(i).remote;
  if (!any) return std::unique_ptr<JobAuthority>();
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  DS_ASSIGN_OR_RETURN(JobAuthority authority, JobAuthority::Create(plan.job_id));
  return std::make_unique<JobAuthority>(std::move(authority));
}

// The material of the fan-out, by place in the list of hosts to start. A start that is given up
// keeps a reference.
struct HostStarter::RemoteHosts {
  std::vector<Replacement> places;
  std::vector<RemoteTarget> targets;
  std::vector<v1::Credentials> credentials;
  std::vector<std::string> notices;  // of those that are ready, for the user
  RemoteJob job;
  TlsOptions tls;  // for all
};

HostStarter::HostStarter(Options options)
    : options_(std::move(options)),
      plan_(options_.plan),
      timeout_(FromSeconds(plan_->flags.ssh_timeout)),
      lease_(FromSeconds(plan_->flags.lease_seconds)),
      leases_(lease_) {
  for (int i = 0; i < static_cast<int>(plan_->world.hosts.size()); ++i) {
    places_.push_back({.number = i, .host = i, .node_rank = i});
  }
}

HostStarter::~HostStarter() = default;

void HostStarter::Interrupt() {
  interrupter_->Interrupt();  // first: Keep looks whether it was
  const std::lock_guard lock(mutex_);
  for (const auto& [number, daemon] : daemons_) daemon->CancelStarts();
}

void HostStarter::Keep(int number, std::unique_ptr<HostDaemon> daemon) {
  HostDaemon* const kept = daemon.get();
  {
    const std::lock_guard lock(mutex_);
    if (interrupter_->interrupted()) daemon->CancelStarts();
    daemons_[number] = std::move(daemon);
  }
  leases_.Add(number, kept);
}

StatusOr<std::map<int, FailedHost>> HostStarter::StartAll(
    const std::function<Status(const Replacement&, const Status&)>& on_local_failure) {
  std::vector<Replacement> remote;
  for (const Replacement& place : places_) {
    if (plan_->host(place.host).remote) {
      remote.push_back(place);
    } else if (const Status local = StartLocal(place.number); !local.ok()) {
      DS_RETURN_IF_ERROR(on_local_failure(place, local));
    }
  }
  if (remote.empty()) return std::map<int, FailedHost>();
  return StartRemote(remote);
}

std::map<int, HostDaemon*> HostStarter::ListDaemons() const {
  std::map<int, HostDaemon*> daemons;
  for (const auto& [number, daemon] : daemons_) daemons[number] = daemon.get();
  return daemons;
}

StatusOr<StartedHosts> HostStarter::StartHosts(NoticeCallback notice) {
  notice_ = std::move(notice);
  DS_ASSIGN_OR_RETURN(const auto failed, StartAll([](const Replacement&, const Status& why) {
                        return why;  // this machine has the job, too
                      }));
  StartedHosts started;
  std::vector<int> places;
  for (const auto& [node_rank, each] : failed) {
    places.push_back(node_rank);
    started.failed.push_back(each);
  }
  if (!CanReplace(*plan_, places, SparePool(plan_->CountSpareSlots()))) {
    ReleaseHosts();
    return started;
  }
  absent_.table =
      MakeFailureTable(std::exchange(started.failed, {}), static_cast<int>(places_.size()));
  for (const auto& [node_rank, each] : failed) {
    absent_.failures.emplace(node_rank, MakeUnreachableVerdict(each));
  }
  started.daemons = ListDaemons();
  started.master_addr = FindMasterAddress();
  return started;
}

StatusOr<StartedHosts> HostStarter::StartReachableHosts(NoticeCallback notice) {
  notice_ = std::move(notice);
  StartedHosts started;
  const auto on_local_failure = [&](const Replacement& place, const Status& why) {
    started.failed.push_back({plan_->host(place.host).entry.name,
                              {.kind = FailureKind::kStart, .message = why.message()}});
    return OkStatus();
  };
  DS_ASSIGN_OR_RETURN(const auto failed, StartAll(on_local_failure));
  for (const auto& [node_rank, each] : failed) started.failed.push_back(each);
  started.daemons = ListDaemons();
  return started;
}

StatusOr<StartedReplacement> HostStarter::StartReplacement(const Replacement& replacement) {
  if (!plan_->host(replacement.host).remote) {
    DS_RETURN_IF_ERROR(StartLocal(replacement.number));
  } else {
    DS_ASSIGN_OR_RETURN(const auto failed, StartRemote({replacement}));
    if (!failed.empty()) {
      const HostFailure& failure = failed.begin()->second.failure;
      return UnavailableError(failure.message + (failure.hint.empty() ? "" : "; " + failure.hint));
    }
  }
  places_[replacement.node_rank] = replacement;
  return StartedReplacement{.daemon = daemons_.at(replacement.number).get(),
                            .master_addr = FindMasterAddress()};
}

void HostStarter::ReleaseHosts() {
  if (std::exchange(released_, true)) return;
  leases_.Release();
  for (const auto& [number, daemon] : daemons_) daemon->HangUp();
  if (options_.on_release) options_.on_release();
}

void HostStarter::AwaitHosts(const NoticeCallback& notice) {
  for (LocalDaemon* daemon : local_) static_cast<void>(daemon->Close(notice));
}

bool HostStarter::TellOfHosts(const NoticeCallback& notice) {
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (LocalDaemon* daemon : local_) {
    const std::string waits_for = daemon->DescribeWait();
    if (waits_for.empty()) continue;
    any = true;
    notice(waits_for);
  }
  return any;
}

bool HostStarter::KillHosts() {
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (LocalDaemon* daemon : local_) any = daemon->Kill() || any;
  return any;
}

Status HostStarter::StartLocal(int number) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<LocalDaemon> daemon,
                      LocalDaemon::Start({.job_id = plan_->job_id,
                                          .interrupt_fd = interrupter_->fd(),
                                          .controller_fd = options_.controller_fd}));
  KeepLocal(number, std::move(daemon));
  return OkStatus();
}

void HostStarter::KeepLocal(int number, std::unique_ptr<LocalDaemon> daemon) {
  {
    const std::lock_guard lock(mutex_);
    local_.push_back(daemon.get());
    v1::DaemonState& way = ways_[number];
    way.set_number(number);
    way.set_folder(daemon->folder().string());
    way.set_bound(!daemon->CanBeAdopted());
    way.set_guardian_pid(daemon->guardian_pid());
  }
  Keep(number, std::move(daemon));
}

StatusOr<StartedHosts> HostStarter::AdoptHosts(const v1::JobState& state, NoticeCallback notice) {
  notice_ = std::move(notice);
  TlsOptions tls;
  if (options_.authority != nullptr) {
    DS_ASSIGN_OR_RETURN(tls, MakeTlsOptions());
  }
  std::vector<int> tunnelled;
  for (int i = 0; i < state.daemons_size(); ++i) {
    const v1::DaemonState& way = state.daemons(i);
    if (way.target().empty()) {
      StatusOr<std::unique_ptr<LocalDaemon>> daemon = LocalDaemon::Adopt(
          {.job_id = plan_->job_id, .controller_fd = options_.controller_fd}, way.folder());
      if (daemon.ok()) {
        KeepLocal(way.number(), *std::move(daemon));
      } else {
        KeepWay(way);
        Keep(way.number(), std::make_unique<EndedDaemon>(daemon.status(), way.guardian_pid()));
      }
      continue;
    }
    if (way.port() != 0) {
      tunnelled.push_back(i);
    } else {
      KeepRemote(way, tls, /*tunnel=*/nullptr);
    }
  }
  if (!tunnelled.empty()) DS_RETURN_IF_ERROR(ReopenTunnels(state, tunnelled, tls));
  StartedHosts started;
  for (int i = 0; i < state.places_size(); ++i) {
    const v1::HostPlace& place = state.places(i);
    places_[i] = {.number = place.number(), .host = place.host(), .node_rank = i};
  }
  started.daemons = ListDaemons();
  for (const v1::ClockState& clock : state.moment().clocks()) {
    const auto daemon = started.daemons.find(clock.number());
    if (daemon != started.daemons.end()) daemon->second->RestoreClock(ReadClock(clock));
  }
  started.master_addr = state.master_addr();
  return started;
}

Status HostStarter::ReopenTunnels(const v1::JobState& state, const std::vector<int>& positions,
                                  const TlsOptions& tls) {
  struct Tunnels {
    std::vector<RemoteTarget> targets;
    std::vector<v1::DaemonState> ways;
    RemoteJob job;
  };
  const auto tunnels = std::make_shared<Tunnels>();
  tunnels->job = MakeRemoteJob();
  for (const int position : positions) {
    const v1::HostPlace& place = state.places(position);
    DS_ASSIGN_OR_RETURN(RemoteTarget target,
                        MakeTarget({.number = place.number(), .host = place.host()}));
    tunnels->targets.push_back(std::move(target));
    tunnels->ways.push_back(state.daemons(position));
  }
  const auto reopen = [=, this](int index, HostAttempt* attempt) -> HostResult<FanOut::Accept> {
    const v1::DaemonState& way = tunnels->ways[index];
    HostResult<std::unique_ptr<RemoteTunnel>> tunnel =
        ReopenTunnel(tunnels->targets[index], {way.address(), way.port()}, tunnels->job, attempt);
    if (!tunnel.ok()) return tunnel.failure();
    const auto opened = std::make_shared<std::unique_ptr<RemoteTunnel>>(*std::move(tunnel));
    return FanOut::Accept([=, this] {
      v1::DaemonState reached = way;
      reached.set_target((*opened)->target());
      KeepRemote(reached, tls, std::move(*opened));
    });
  };
  const std::vector<HostOutcome> outcomes =
      FanOut::Run(static_cast<int>(positions.size()), {.timeout = std::min(timeout_, lease_)},
                  interrupter_, reopen, [&](const FanOutProgress& progress) {
                    notice_(ProgressText("reaching again", progress, tunnels->targets));
                  });
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].ok()) continue;
    notice_("host " + tunnels->targets[i].name + ": " + outcomes[i].failure().message);
    KeepRemote(tunnels->ways[i], tls, /*tunnel=*/nullptr);
  }
  return OkStatus();
}

void HostStarter::Describe(v1::JobState* state) {
  const std::lock_guard lock(mutex_);
  for (const v1::HostPlace& place : state->places()) {
    *state->add_daemons() = ways_.at(place.number());
  }
}

void HostStarter::KeepWay(const v1::DaemonState& way) {
  const std::lock_guard lock(mutex_);
  ways_[way.number()] = way;
}

StatusOr<TlsOptions> HostStarter::MakeTlsOptions() const {
  TlsOptions tls{.lease = lease_};
  DS_ASSIGN_OR_RETURN(tls.credentials, options_.authority->IssueController());
  tls.made = MakeChannelCredentials(tls.credentials);
  return tls;
}

void HostStarter::KeepRemote(const v1::DaemonState& way, TlsOptions tls,
                             std::unique_ptr<RemoteTunnel> tunnel) {
  tls.daemon_name = ::dsrun::v1::DaemonPeerName(plan_->job_id, way.number());
  KeepWay(way);
  Keep(way.number(),
       std::make_unique<DaemonClient>(plan_->job_id, way.target(), tls, std::move(tunnel)));
}

StatusOr<RemoteTarget> HostStarter::MakeTarget(const Replacement& place) const {
  DS_ASSIGN_OR_RETURN(RemoteTarget target,
                      MakeRemoteTarget(plan_->host(place.host).entry, plan_->flags.ssh_port));
  target.node_rank = place.number;
  return target;
}

RemoteJob HostStarter::MakeRemoteJob() const {
  return {.job_id = plan_->job_id,
          .timeout = timeout_,
          .lease = lease_,
          .lease_decides = plan_->flags.lease_decides,
          .transport = plan_->flags.transport,
          .host_keys = std::make_shared<HostKeys>(options_.known_hosts)};
}

StatusOr<std::shared_ptr<HostStarter::RemoteHosts>> HostStarter::DescribeHosts(
    const std::vector<Replacement>& places) {
  auto hosts = std::make_shared<RemoteHosts>();
  hosts->places = places;
  for (const Replacement& place : places) {
    DS_ASSIGN_OR_RETURN(RemoteTarget target, MakeTarget(place));
    hosts->targets.push_back(std::move(target));
  }
  DS_ASSIGN_OR_RETURN(hosts->tls, MakeTlsOptions());
  for (const Replacement& place : places) {
    DS_ASSIGN_OR_RETURN(v1::Credentials credentials, options_.authority->IssueDaemon(place.number));
    hosts->credentials.push_back(std::move(credentials));
  }
  hosts->notices.resize(places.size());
  hosts->job = MakeRemoteJob();
  hosts->job.binary = ReadInBackground();
  return hosts;
}

void HostStarter::Accept(RemoteHosts* hosts, int index, StartedDaemon* started) {
  const int number = hosts->places[index].number;
  hosts->notices[index] = started->notice;
  v1::DaemonState way;
  way.set_number(number);
  way.set_target(started->target());
  way.set_address(started->address);
  if (started->tunnel != nullptr) way.set_port(started->port);
  // At once: its lease must last until the slowest host is ready.
  KeepRemote(way, hosts->tls, std::move(started->tunnel));
}

StatusOr<std::map<int, FailedHost>> HostStarter::StartRemote(
    const std::vector<Replacement>& places) {
  DS_ASSIGN_OR_RETURN(const std::shared_ptr<RemoteHosts> hosts, DescribeHosts(places));
  const auto start = [this, hosts](int index, HostAttempt* attempt) -> HostResult<FanOut::Accept> {
    HostResult<StartedDaemon> daemon =
        StartRemoteDaemon(hosts->targets[index], hosts->credentials[index], hosts->job, attempt);
    if (!daemon.ok()) return daemon.failure();
    const auto started = std::make_shared<StartedDaemon>(*std::move(daemon));
    return FanOut::Accept([=, this] { Accept(hosts.get(), index, started.get()); });
  };
  const std::vector<HostOutcome> outcomes =
      FanOut::Run(static_cast<int>(places.size()), {.timeout = timeout_}, interrupter_, start,
                  [&](const FanOutProgress& progress) {
                    notice_(ProgressText("starting", progress, hosts->targets));
                  });
  std::map<int, FailedHost> failed;
  bool told_of_hang = false;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string host = "host " + hosts->targets[i].name + ": ";
    if (outcomes[i].ok()) {
      if (!hosts->notices[i].empty()) notice_(host + hosts->notices[i]);
      continue;
    }
    const HostFailure& failure = outcomes[i].failure();
    failed.insert({places[i].node_rank, {hosts->targets[i].name, failure}});
    if (failure.kind != FailureKind::kInterrupted || !failure.hung || told_of_hang) continue;
    notice_(host + failure.message);  // an interrupted start has no table
    told_of_hang = true;
  }
  return failed;
}

// Another host's is the address that was dialled; this machine's own is what is seen from the first
// of the others.
std::string HostStarter::FindMasterAddress() const {
  const std::string& planned = plan_->master_addr;
  const Replacement& first = places_[0];
  const auto address_of = [this](const Replacement& place) {
    const auto found = ways_.find(place.number);
    return found == ways_.end() ? "" : found->second.address();
  };
  if (places_.size() == 1 || !plan_->flags.master_addr.empty()) return planned;
  if (plan_->host(first.host).remote) return address_of(first);
  const auto other = std::find_if(places_.begin(), places_.end(), [&](const Replacement& place) {
    return !address_of(place).empty();
  });
  if (other == places_.end()) return planned;
  const HostEntry& entry = plan_->host(first.host).entry;
  const auto own = entry.keys.find("address");
  if (own != entry.keys.end()) return own->second;
  const std::string local = LocalAddressTowards(address_of(*other));
  return local.empty() ? entry.name : local;
}

}  // namespace ds::cli
