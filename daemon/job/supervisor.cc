#include "daemon/job/supervisor.h"

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <limits>
#include <utility>

#include "daemon/host/orphans.h"
#include "daemon/ranks/preflight.h"
#include "daemon/ranks/rank_input.h"
#include "proto/lease.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/process/available_memory.h"
#include "runtime/process/boot_time.h"
#include "runtime/process/cpu_topology.h"

namespace ds::daemon {
namespace {

Status CheckProtocol(const v1::PrepareRequest& request, const std::string& host) {
  if (request.protocol_version() == v1::PROTOCOL_CURRENT) return OkStatus();
  return FailedPreconditionError(
      "dsrun " + request.dsrun_version() + " speaks protocol " +
      std::to_string(request.protocol_version()) + ", dsrund " DS_VERSION " on " + host +
      " protocol " + std::to_string(v1::PROTOCOL_CURRENT) + "; install the same version of both");
}

// Containers that forbid choosing memory nodes also forbid this query.
bool MayChooseMemory() {
  int mode = 0;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0;
}

rlimit64 ReadProcessLimit() {
  rlimit64 limit{RLIM64_INFINITY, RLIM64_INFINITY};
  ::getrlimit64(RLIMIT_NPROC, &limit);  // fails only for an unknown limit
  return limit;
}

void DescribeCores(v1::PrepareResponse* response) {
  const CpuTopology topology = ReadCpuTopology();
  for (const int core : topology.cores) {
    response->add_usable_cores(static_cast<std::uint32_t>(core));
  }
  if (!MayChooseMemory()) return;
  for (const NumaNode& node : topology.nodes) {
    v1::NumaNode* described = response->add_numa_nodes();
    described->set_id(static_cast<std::uint32_t>(node.id));
    for (const int cpu : node.cpus) described->add_cpus(static_cast<std::uint32_t>(cpu));
    described->set_memory_bytes(node.memory_bytes);
  }
}

}  // namespace

Status MakeRefusal(const Status& error) {
  const bool like_silence =
      error.code() == StatusCode::kUnavailable || error.code() == StatusCode::kDeadlineExceeded;
  return like_silence ? FailedPreconditionError(error.message()) : error;
}

StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(EventLoop* loop,
                                                         SupervisorOptions options) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor(loop, std::move(options)));
  DS_RETURN_IF_ERROR(AdoptOrphans());
  DS_RETURN_IF_ERROR(supervisor->WatchSignals());
  DS_RETURN_IF_ERROR(supervisor->WatchController());
  if (supervisor->duty_.has_lease()) {
    DS_ASSIGN_OR_RETURN(DeathTimer death, DeathTimer::Create());
    supervisor->death_.emplace(std::move(death));
    supervisor->SetEndOfLease();
  }
  return supervisor;
}

Supervisor::Supervisor(EventLoop* loop, SupervisorOptions options)
    : loop_(loop), options_(std::move(options)), duty_(options_.lease, BootTime()) {}

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
    Finish(v1::STOP_DAEMON_SIGNALLED);
  }
  if (duty_.refused()) {
    EndRefusedWhenAlone();
  } else if (duty_.ending()) {
    EndGenerationWhenAlone();
  } else {
    ReapOrphans([this](pid_t pid) { return generation_ && generation_->HasRank(pid); });
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

std::optional<std::string> Supervisor::FindEnvironmentValue(std::string_view name) const {
  for (const std::string& entry : options_.environment) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

StatusOr<v1::PrepareResponse> Supervisor::Prepare(const v1::PrepareRequest& request) {
  DS_RETURN_IF_ERROR(CheckNewWork(request.job_id()));
  const PreflightContext context{ProbeHost(), options_.dsrank,
                                 FindEnvironmentValue("PATH").value_or(""),
                                 FindEnvironmentValue("LD_LIBRARY_PATH").value_or(""),
                                 FindEnvironmentValue("CUDA_VISIBLE_DEVICES")};
  DS_RETURN_IF_ERROR(CheckProtocol(request, context.facts.host_name));
  v1::PrepareResponse response;
  response.set_core_count(context.facts.cores);
  response.set_machine(context.facts.machine);
  response.set_ranks_on_gpus(ComputesOnGpus(request, context));
  response.set_unix_nanos(Clock::System().UnixNanos());
  if (const auto bytes = ReadAvailableMemory()) {
    response.set_available_memory(std::max<std::uint64_t>(1, *bytes));
  }
  for (v1::Finding& finding : RunPreflight(request, context)) {
    *response.add_findings() = std::move(finding);
  }
  if (request.describe_cores()) DescribeCores(&response);
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

StatusOr<v1::LaunchResponse> Supervisor::Launch(const v1::LaunchRequest& request) {
  DS_RETURN_IF_ERROR(CheckJob(request.job_id()));
  DS_RETURN_IF_ERROR(duty_.CheckLaunch(request.generation()));
  if (port_ && port_was_named_) port_->Release();
  auto log = std::make_shared<EventLog>(EventLogLimits{}, [this] {
    loop_->Post([this] {
      if (generation_) generation_->Resume();
    });
  });
  evidence_.Restart();
  Generation::Options options{
      .host = {options_.environment, options_.dsrank, "", ReadProcessLimit(), options_.open_files},
      .folder = options_.folder,
      .log = std::move(log),
      .evidence = &evidence_,
      .on_ranks_ended = [this] { OnRanksEnded(); }};
  auto created = Generation::Create(loop_, request, std::move(options));
  if (!created.ok()) return MakeRefusal(created.status());
  if (const Status started = (*created)->Start(request); !started.ok()) {
    refused_ = std::move(created).value();
    duty_.OnRefused();
    EndRefusedWhenAlone();
    return MakeRefusal(started);
  }
  generation_ = std::move(created).value();
  duty_.OnLaunched(generation_->number(), generation_->grace());
  SetEndOfLease();
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
  DS_RETURN_IF_ERROR(duty_.OnRenewal(std::chrono::nanoseconds(request.answered()), now));
  SetEndOfLease();
  if (request.release()) Finish(v1::STOP_REQUESTED);
  v1::RenewResponse response;
  response.set_boot_nanos(static_cast<std::uint64_t>(now.count()));
  return response;
}

void Supervisor::SetEndOfLease() {
  if (!death_) return;
  death_->SetTo(duty_.death());
  if (lease_end_) loop_->CancelTimer(*lease_end_);
  const auto left = duty_.end_of_lease() - BootTime();
  lease_end_ = loop_->CallAt(std::chrono::steady_clock::now() + left, [this] {
    lease_end_.reset();
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

void Supervisor::EndRefusedWhenAlone() {
  if (!EndOrphans(Orphans::kKill)) return;
  refused_.reset();
  if (duty_.OnAlone() == DaemonDuty::Next::kQuit) Quit();
}

void Supervisor::Finish(v1::StopCause cause) {
  const DaemonDuty::Next next = duty_.Finish();
  if (next == DaemonDuty::Next::kStopRanks) generation_->Stop(duty_.grace(cause), cause);
  if (next == DaemonDuty::Next::kQuit) Quit();
}

// No process runs any more; the last events may take some time.
void Supervisor::Quit() {
  death_.reset();
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
