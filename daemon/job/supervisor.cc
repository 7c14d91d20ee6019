#include "daemon/job/supervisor.h"

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <limits>
#include <utility>

#include "daemon/host/orphans.h"
#include "daemon/inspect/child_output.h"
#include "daemon/inspect/find_program.h"
#include "daemon/inspect/judge.h"
#include "daemon/ranks/rank_input.h"
#include "proto/lease.h"
#include "runtime/base/host_name.h"
#include "runtime/base/log.h"
#include "runtime/process/boot_time.h"

namespace ds::daemon {
namespace {

Status CheckProtocol(const v1::PrepareRequest& request, const std::string& host) {
  if (request.protocol_version() == v1::PROTOCOL_CURRENT) return OkStatus();
  return FailedPreconditionError(
      "dsrun " + request.dsrun_version() + " speaks protocol " +
      std::to_string(request.protocol_version()) + ", dsrund " DS_VERSION " on " + host +
      " protocol " + std::to_string(v1::PROTOCOL_CURRENT) + "; install the same version of both");
}

rlimit64 ReadProcessLimit() {
  rlimit64 limit{RLIM64_INFINITY, RLIM64_INFINITY};
  ::getrlimit64(RLIMIT_NPROC, &limit);  // fails only for an unknown limit
  return limit;
}

}  // namespace

StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(EventLoop* loop,
                                                         SupervisorOptions options) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor(loop, std::move(options)));
  DS_RETURN_IF_ERROR(AdoptOrphans());
  DS_RETURN_IF_ERROR(supervisor->WatchSignals());
  DS_RETURN_IF_ERROR(supervisor->WatchController());
  if (supervisor->lease_.exists()) {
    DS_ASSIGN_OR_RETURN(DeathTimer death, DeathTimer::Create());
    death.SetTo(supervisor->lease_.death());
    supervisor->death_.emplace(std::move(death));
    supervisor->SetEndOfLease();
  }
  return supervisor;
}

Supervisor::Supervisor(EventLoop* loop, SupervisorOptions options)
    : loop_(loop), options_(std::move(options)), lease_(options_.lease, BootTime()) {}

Supervisor::~Supervisor() {
  loop_->Remove(signals_.get());
  loop_->Remove(options_.controller.get());
  for (const auto& timer : {heartbeat_, lease_end_}) {
    if (timer) loop_->CancelTimer(*timer);
  }
}

Status Supervisor::WatchSignals() {
  DS_ASSIGN_OR_RETURN(signals_, OpenLoopSignals());
  return loop_->Add(signals_.get(), [this] { OnSignal(); });
}

Status Supervisor::WatchController() {
  const int fd = options_.controller.get();
  if (fd < 0) return OkStatus();
  return loop_->Add(fd, [this, fd] {
    // The controller writes nothing, so a readable pipe means that it has closed.
    std::array<char, 64> ignored;
    if (::read(fd, ignored.data(), ignored.size()) > 0) return;
    loop_->Remove(fd);
    OnControllerGone();
    if (generation_) generation_->log()->Abandon();  // no rank may wait for a reader
    Finish(v1::STOP_CONTROLLER_GONE);
  });
}

void Supervisor::OnControllerGone() {
  if (!duty_.running() || duty_.finishing()) return;
  LogWarning("dsrun is gone; stopping the ranks of its job");
  Finish(v1::STOP_CONTROLLER_GONE);
}

void Supervisor::OnSignal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == SIGCHLD) continue;
    if (info.ssi_signo == SIGHUP && options_.survives_hangup) continue;
    if (!duty_.finishing()) {
      LogWarning("received signal " + std::to_string(info.ssi_signo) + " of process " +
                 std::to_string(info.ssi_pid) + "; stopping the ranks of its job");
    }
    Finish(v1::STOP_DAEMON_SIGNALLED);
  }
  if (duty_.ending()) {
    EndGenerationWhenAlone();
  } else {
    // A program that answers a question is reaped by its caller, who reads its exit status. Orphans
    // that end meanwhile are reaped at the next SIGCHLD.
    ReapOrphans([this](pid_t pid) {
      return HasRunningPrograms() || (generation_ && generation_->HasRank(pid));
    });
  }
}

Status Supervisor::CheckJob(const std::string& job_id) const {
  if (job_id == options_.job_id) return OkStatus();
  return NotFoundError("this daemon serves job '" + options_.job_id + "', not '" + job_id + "'");
}

Status Supervisor::CheckNewWork(const std::string& job_id) const {
  DS_RETURN_IF_ERROR(CheckJob(job_id));
  return duty_.CheckNewWork();
}

Status Supervisor::CheckGeneration(const std::string& job_id, std::uint32_t generation) const {
  DS_RETURN_IF_ERROR(CheckJob(job_id));
  if (generation_ && generation == generation_->number()) return OkStatus();
  return NotFoundError("generation " + std::to_string(generation) + " is not the current one");
}

StatusOr<PreflightContext> Supervisor::BeginPrepare(const v1::PrepareRequest& request) {
  DS_RETURN_IF_ERROR(CheckNewWork(request.job_id()));
  DS_RETURN_IF_ERROR(CheckProtocol(request, HostName()));
  return PreflightContext{
      {},
      options_.dsrank,
      FindEnvironmentValue(options_.environment, "PATH").value_or(""),
      FindEnvironmentValue(options_.environment, "LD_LIBRARY_PATH").value_or(""),
      FindEnvironmentValue(options_.environment, "CUDA_VISIBLE_DEVICES"),
      FindOpenFilesOfRanks()};
}

std::optional<std::uint64_t> Supervisor::FindOpenFilesOfRanks() const {
  if (options_.open_files.rlim_cur == RLIM64_INFINITY) return std::nullopt;
  return options_.open_files.rlim_cur;
}

StatusOr<InspectOptions> Supervisor::BeginInspect(const v1::InspectRequest& request) {
  DS_RETURN_IF_ERROR(CheckNewWork(request.job_id()));
  return InspectOptions{.dsrun_version = DS_VERSION,
                        .environment = options_.environment,
                        .dsrank = options_.dsrank,
                        .working_directory = request.working_directory(),
                        .run_directory = "",
                        .python = request.python(),
                        .exports = request.environment(),
                        .open_files_of_ranks = FindOpenFilesOfRanks(),
                        .looks_at_cache = true};
}

StatusOr<v1::PrepareResponse> Supervisor::FinishPrepare(const v1::PrepareRequest& request,
                                                        v1::PrepareResponse response) {
  DS_RETURN_IF_ERROR(CheckNewWork(request.job_id()));
  response.set_log_path(options_.log_path);
  if (request.lease_master_port()) {
    *response.add_findings() = LeasePort(request.master_port(), request.generation());
    if (port_) response.set_master_port(port_->port());
  }
  return response;
}

v1::Finding Supervisor::LeasePort(std::uint32_t port, std::uint32_t generation) {
  constexpr char kName[] = "port";
  if (port > std::numeric_limits<std::uint16_t>::max()) {
    return MakeFinding(v1::Finding::FAIL, kName, "there is no port " + std::to_string(port),
                       "name one below 65536");
  }
  // A repeated request gets the same port.
  const bool is_same = port == 0 ? !port_was_named_ && generation == port_generation_
                                 : port_ && port == port_->port();
  if (port_ && is_same) {
    return MakeFinding(v1::Finding::OK, kName, std::to_string(port_->port()));
  }
  // Take the new port while the last one is still held, so that they differ.
  StatusOr<PortLease> lease = PortLease::Take(static_cast<std::uint16_t>(port));
  port_.reset();
  if (!lease.ok()) {
    return MakeFinding(v1::Finding::FAIL, kName, lease.status().message(),
                       "leave --master_port out to get a free one, or name another");
  }
  port_.emplace(std::move(lease).value());
  port_was_named_ = port != 0;
  port_generation_ = generation;
  return MakeFinding(v1::Finding::OK, kName, std::to_string(port_->port()));
}

StatusOr<HostContext> Supervisor::BeginLaunch(const v1::LaunchRequest& request) {
  DS_RETURN_IF_ERROR(CheckJob(request.job_id()));
  DS_RETURN_IF_ERROR(duty_.CheckLaunch(request.generation()));
  if (launching_) return FailedPreconditionError("another launch is in progress");
  auto log = std::make_shared<EventLog>(EventLogLimits{}, [this] {
    loop_->Post([this] {
      if (generation_) generation_->Resume();
    });
  });
  Generation::Options options{
      .host = {options_.environment, options_.dsrank, "", ReadProcessLimit(), options_.open_files},
      .folder = options_.folder,
      .log = std::move(log),
      .evidence = &evidence_,
      .on_ranks_ended = [this] { OnRanksEnded(); }};
  auto created = Generation::Create(loop_, request, std::move(options));
  if (!created.ok()) return MakeRefusal(created.status());
  launching_ = *std::move(created);
  return launching_->host();
}

StatusOr<v1::LaunchResponse> Supervisor::FinishLaunch(const v1::LaunchRequest& request,
                                                      StatusOr<std::vector<RankCommand>> commands) {
  std::unique_ptr<Generation> launching = std::move(launching_);
  if (!commands.ok()) return MakeRefusal(commands.status());
  DS_RETURN_IF_ERROR(duty_.CheckNewWork());
  if (port_ && port_was_named_) port_->Release();
  evidence_.Restart();
  const Status started = launching->Start(request.job_id(), *std::move(commands));
  if (!started.ok()) return MakeRefusal(started);
  generation_ = std::move(launching);
  duty_.OnLaunched(generation_->number(), generation_->grace());
  {
    const std::lock_guard lock(lease_mutex_);
    lease_.SetGrace(generation_->grace());
    if (death_) death_->SetTo(lease_.death());
  }
  ScheduleHeartbeat();
  v1::LaunchResponse response;
  for (const pid_t pid : generation_->pids()) response.add_pids(static_cast<std::uint32_t>(pid));
  return response;
}

StatusOr<v1::StopResponse> Supervisor::Stop(const v1::StopRequest& request) {
  DS_RETURN_IF_ERROR(CheckJob(request.job_id()));
  DS_ASSIGN_OR_RETURN(const auto grace, ToDuration("grace_seconds", request.grace_seconds()));
  if (!generation_ || request.generation() > generation_->number()) {
    return NotFoundError("generation " + std::to_string(request.generation()) +
                         " was not launched");
  }
  v1::StopResponse response;
  if (request.generation() == generation_->number()) {
    response.set_ranks_signalled(
        static_cast<std::uint32_t>(generation_->Stop(grace, v1::STOP_REQUESTED)));
  }
  return response;
}

StatusOr<v1::RenewResponse> Supervisor::Renew(const v1::RenewRequest& request) {
  DS_RETURN_IF_ERROR(CheckJob(request.job_id()));
  const std::chrono::nanoseconds now = BootTime();
  {
    const std::lock_guard lock(lease_mutex_);
    DS_RETURN_IF_ERROR(lease_.OnRenewal(std::chrono::nanoseconds(request.answered()), now));
    if (death_) death_->SetTo(lease_.death());
  }
  if (request.release()) {
    loop_->Post([this] {
      released_ = true;
      Finish(v1::STOP_REQUESTED);
    });
  }
  v1::RenewResponse response;
  response.set_boot_nanos(static_cast<std::uint64_t>(now.count()));
  return response;
}

DaemonLease::Time Supervisor::end_of_lease() {
  const std::lock_guard lock(lease_mutex_);
  return lease_.end();
}

void Supervisor::SetEndOfLease() {
  const auto left = end_of_lease() - BootTime();
  lease_end_ = loop_->CallAt(std::chrono::steady_clock::now() + left, [this] {
    lease_end_.reset();
    if (BootTime() < end_of_lease()) return SetEndOfLease();
    LogWarning("no message from dsrun within its lease; stopping the ranks of its job");
    Finish(v1::STOP_LEASE_EXPIRED);
  });
}

StatusOr<std::shared_ptr<EventLog>> Supervisor::FindLog(const std::string& job_id,
                                                        std::uint32_t generation) {
  DS_RETURN_IF_ERROR(CheckGeneration(job_id, generation));
  return generation_->log();
}

StatusOr<v1::SignalResponse> Supervisor::Signal(const v1::SignalRequest& request) {
  DS_RETURN_IF_ERROR(CheckGeneration(request.job_id(), request.generation()));
  if (request.signal() != SIGUSR1 && request.signal() != SIGUSR2) {
    return InvalidArgumentError("only SIGUSR1 and SIGUSR2 are passed on, not signal " +
                                std::to_string(request.signal()));
  }
  v1::SignalResponse response;
  response.set_ranks_signalled(static_cast<std::uint32_t>(generation_->Forward(request.signal())));
  return response;
}

StatusOr<v1::ShareResponse> Supervisor::Share(const v1::ShareRequest& request) {
  DS_RETURN_IF_ERROR(CheckGeneration(request.job_id(), request.generation()));
  DS_RETURN_IF_ERROR(generation_->Share(request));
  return v1::ShareResponse();
}

StatusOr<std::shared_ptr<RankInput>> Supervisor::FindInput(const std::string& job_id,
                                                           std::uint32_t generation) {
  DS_RETURN_IF_ERROR(CheckGeneration(job_id, generation));
  if (generation_->input() == nullptr) {
    return FailedPreconditionError("rank 0 was launched without input, or is not on this host");
  }
  return generation_->input();
}

void Supervisor::OnRanksEnded() {
  duty_.OnRanksEnded();
  if (heartbeat_) loop_->CancelTimer(*heartbeat_);
  heartbeat_.reset();
  if (!generation_->in_grace()) generation_->AwaitEnd();
  EndGenerationWhenAlone();
}

void Supervisor::EndGenerationWhenAlone() {
  const bool alone = EndOrphans(generation_->in_grace() ? Orphans::kAwait : Orphans::kKill);
  if (!alone && !generation_->has_given_up()) return;
  generation_->End();
  if (duty_.OnAlone() == DaemonDuty::Next::kQuit) Quit();
}

void Supervisor::Finish(v1::StopCause cause) {
  const DaemonDuty::Next next = duty_.Finish();
  if (next == DaemonDuty::Next::kStopRanks) generation_->Stop(duty_.grace(cause), cause);
  if (next == DaemonDuty::Next::kQuit) Quit();
}

// No process runs any more; the last events may take some time.
void Supervisor::Quit() {
  {
    const std::lock_guard lock(lease_mutex_);
    death_.reset();
  }
  loop_->Quit();
}

void Supervisor::ScheduleHeartbeat() {
  heartbeat_ =
      loop_->CallAt(std::chrono::steady_clock::now() + options_.heartbeat_interval, [this] {
        if (!generation_->log()->full()) generation_->AppendHeartbeat();
        ScheduleHeartbeat();
      });
}

}  // namespace ds::daemon
