#include "cli/report/inspect_hosts.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/host/host_daemon.h"
#include "cli/job/generation_state.h"
#include "cli/job/same_machine.h"
#include "cli/job/user_signals.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/wire_requests.h"
#include "cli/session/host_starter.h"
#include "daemon/inspect/judge.h"
#include "proto/grpc_threads.h"
#include "runtime/base/clock.h"
#include "runtime/process/exit_process.h"
#include "runtime/process/private_folder.h"
#include "runtime/process/thread_quota.h"

namespace ds::cli {
namespace {

using Notice = std::function<void(const std::string&)>;

// It receives signals and renews leases.
constexpr int kOwnThreads = 2;
constexpr std::chrono::seconds kReportEvery{3};

// The answers of the daemons, which arrive on threads of gRPC.
class Answers {
 public:
  explicit Answers(std::size_t count)
      : asked_unix_nanos_(Clock::System().UnixNanos()), answers_(count) {}

  // The host has read its clock between the request and the answer, which may have been long on
  // its way.
  void Put(std::size_t host, const StatusOr<v1::InspectResponse>& answer) {
    std::int64_t then = Clock::System().UnixNanos();
    if (answer.ok()) {
      then = std::min(then, std::max(answer->facts().unix_nanos(), asked_unix_nanos_));
    }
    const std::lock_guard lock(mutex_);
    answers_[host].emplace(Answer{answer, then});
    changed_.notify_all();
  }
  // Waits for the answers of these hosts.
  void Await(const std::vector<std::size_t>& asked, const JobPlan& plan, const Notice& notice);

  struct Answer {
    StatusOr<v1::InspectResponse> response;
    std::int64_t unix_nanos;  // by this machine's clock, as near to the host's as can be
  };
  const Answer& at(std::size_t host) const { return *answers_[host]; }

 private:
  const std::int64_t asked_unix_nanos_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Answer>> answers_;  // guarded by mutex_ until Await has returned
};

void Answers::Await(const std::vector<std::size_t>& asked, const JobPlan& plan,
                    const Notice& notice) {
  const auto is_missing = [this](std::size_t host) { return !answers_[host].has_value(); };
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kReportEvery,
                            [&] { return std::none_of(asked.begin(), asked.end(), is_missing); })) {
    const auto missing = std::count_if(asked.begin(), asked.end(), is_missing);
    const auto first = std::find_if(asked.begin(), asked.end(), is_missing);
    notice("inspecting: " + std::to_string(asked.size() - static_cast<std::size_t>(missing)) +
           " of " + std::to_string(asked.size()) + " hosts have answered; waiting for " +
           plan.world.hosts[*first].host + (missing > 1 ? " and others" : ""));
  }
}

class Inspection {
 public:
  Inspection(const JobPlan& plan, std::filesystem::path known_hosts, const Notice& notice)
      : plan_(plan),
        notice_(notice),
        authority_(MakeAuthority(plan)),
        starter_({.plan = &plan,
                  .known_hosts = std::move(known_hosts),
                  .authority = authority_.ok() ? authority_->get() : nullptr}) {}
  StatusOr<InspectedHosts> Run(const std::string& python);
  void Release() { starter_.ReleaseHosts(); }
  void AwaitEnd() { starter_.AwaitHosts(notice_); }
  void Interrupt() { starter_.Interrupt(); }
  void Kill() { starter_.KillHosts(); }

 private:
  void Ask(const std::map<int, HostDaemon*>& daemons, const std::string& python, Answers* answers);
  HostReport MakeReport(std::size_t host, const Answers::Answer& answer) const;

  const JobPlan& plan_;
  const Notice& notice_;
  const StatusOr<std::unique_ptr<JobAuthority>> authority_;
  HostStarter starter_;
};

void Inspection::Ask(const std::map<int, HostDaemon*>& daemons, const std::string& python,
                     Answers* answers) {
  std::vector<std::size_t> asked;
  for (const auto& [number, daemon] : daemons) {
    const auto i = static_cast<std::size_t>(number);  // nothing is replaced
    asked.push_back(i);
    const v1::InspectRequest request = MakeInspectRequest(plan_, plan_.world.hosts[i], python);
    daemon->Begin(request, [i, answers](const StatusOr<v1::InspectResponse>& answer) {
      answers->Put(i, answer);
    });
  }
  answers->Await(asked, plan_, notice_);
}

HostReport Inspection::MakeReport(std::size_t host, const Answers::Answer& answer) const {
  const JobHost& planned = plan_.world.hosts[host];
  HostReport report{
      .host = planned.host, .facts = answer.response->facts(), .unix_nanos = answer.unix_nanos};
  report.findings =
      daemon::JudgeHost(report.facts, static_cast<std::uint32_t>(planned.rank_count()));
  report.findings.push_back(daemon::JudgeClock(report.facts.unix_nanos(), report.unix_nanos));
  v1::PrepareRequest required;
  SetDevices(plan_, planned, &required);
  const v1::Finding devices = daemon::JudgeDevices(report.facts, required);
  if (devices.level() != v1::Finding::OK) report.findings.push_back(devices);
  return report;
}

// A host that gives an answer is reached; the answer is an error.
FailedHost DescribeNoFacts(const std::string& host, const Status& answer) {
  if (!NobodyAnswered(answer)) {
    return {host, {.kind = FailureKind::kStart, .message = "dsrund: " + answer.message()}};
  }
  return {host,
          {.kind = FailureKind::kUnreachable,
           .message = "dsrund does not answer: " + answer.message(),
           .hint = "see the network and the load of this host"}};
}

// As a job, which refuses two names of one machine.
void JudgeMachines(const std::string& hostfile, std::vector<HostReport>* hosts) {
  std::vector<HostMachine> machines;
  for (const HostReport& host : *hosts) {
    machines.push_back({.host = host.host, .machine = host.facts.machine()});
  }
  for (const auto& [index, same] : FindSameMachines(machines, hostfile)) {
    (*hosts)[index].findings.push_back(
        daemon::MakeFinding(v1::Finding::FAIL, "machine", same.message, same.hint));
  }
}

StatusOr<InspectedHosts> Inspection::Run(const std::string& python) {
  if (!authority_.ok()) return authority_.status();
  DS_ASSIGN_OR_RETURN(StartedHosts started, starter_.StartReachableHosts(notice_));
  InspectedHosts inspected{.hosts = {}, .failed = std::move(started.failed)};
  Answers answers(plan_.world.hosts.size());
  Ask(started.daemons, python, &answers);
  for (const auto& [number, daemon] : started.daemons) {
    const auto i = static_cast<std::size_t>(number);
    const Answers::Answer& answer = answers.at(i);
    if (answer.response.ok()) {
      inspected.hosts.push_back(MakeReport(i, answer));
      continue;
    }
    inspected.failed.push_back(
        DescribeNoFacts(plan_.world.hosts[i].host, answer.response.status()));
  }
  if (!plan_.flags.share_machine) {
    JudgeMachines(plan_.flags.hostfile.value_or("the hostfile"), &inspected.hosts);
  }
  return inspected;
}

Status StartThreads(UserSignals* signals) try {
  const int threads = v1::CountGrpcThreads() + v1::CountGrpcCallbackThreads() + kOwnThreads;
  DS_RETURN_IF_ERROR(CheckThreadQuota(threads));
  DS_RETURN_IF_ERROR(signals->Listen());
  ::grpc_init();
  return OkStatus();
} catch (const std::system_error& error) {
  return OutOfResourcesError(std::string("no thread for signals: ") + error.what());
}

}  // namespace

StatusOr<int> InspectHosts(const JobPlan& plan, const std::string& python,
                           const InspectionCallbacks& callbacks) try {
  UserSignals signals;  // before any other thread, which must not take the signals
  DS_RETURN_IF_ERROR(StartThreads(&signals));
  DS_ASSIGN_OR_RETURN(PrivateFolder folder, PrivateFolder::Make());
  std::atomic<int> first_signal = 0;
  std::atomic<bool> shown = false;
  Status failure;
  {
    Inspection inspection(plan, folder.path() / "known_hosts", callbacks.notice);
    const SignalTarget target(&signals, {.on_signal = [&](int signal) {
      if (IsForwarded(signal)) return;
      const bool is_first = first_signal.exchange(signal) == 0;
      inspection.Interrupt();
      if (!is_first || shown) inspection.Kill();
      if (!is_first) ExitProcess(128 + signal);
    }});
    const StatusOr<InspectedHosts> inspected = inspection.Run(python);
    inspection.Release();
    if (!inspected.ok()) {
      failure = inspected.status();
    } else if (first_signal == 0) {
      callbacks.show(*inspected);
    }
    shown = true;
    inspection.AwaitEnd();
  }
  folder.Remove();
  if (first_signal == 0 && !failure.ok()) return failure;
  return first_signal.load();
} catch (const std::system_error& error) {
  return OutOfResourcesError(std::string("no thread to renew leases: ") + error.what());
}

}  // namespace ds::cli
