#include "cli/job/job_controller.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <utility>

#include "cli/job/memory_shortage.h"
#include "cli/job/restart_policy.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/wire_requests.h"
#include "runtime/base/clock.h"
#include "runtime/process/boot_time.h"

namespace ds::cli {
namespace {

// Events on their way from the daemons to the observer; each holds at most 1 MiB of output.
constexpr std::size_t kQueuedEvents = 64;

// A host's clock that is far from ours, in words; "" when it is near or not told. The answer took
// its time, so that small differences mean nothing.
std::string DescribeClockSkew(const std::string& host, std::int64_t host_unix_nanos) {
  constexpr std::int64_t kNoticed = 10;
  const std::int64_t seconds = (host_unix_nanos - Clock::System().UnixNanos()) / 1'000'000'000;
  if (host_unix_nanos == 0 || std::abs(seconds) < kNoticed) return "";
  return "host " + host + ": its clock is " + std::to_string(std::abs(seconds)) + " s " +
         (seconds > 0 ? "ahead" : "behind") + "; the times of its events are off by that";
}

std::chrono::nanoseconds FromSeconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

std::vector<int> CountSlots(const std::vector<JobHost>& spares) {
  std::vector<int> counts;
  for (const JobHost& spare : spares) counts.push_back(spare.rank_count());
  return counts;
}

}  // namespace

JobController::JobController(JobPlan job, const Program* program,
                             const std::vector<HostDaemon*>& daemons, JobObserver* observer,
                             const Options& options)
    : job_(std::move(job)),
      program_(program),
      observer_(observer),
      options_(options),
      stop_(options.stop),
      spares_(CountSlots(job_.spares)),
      fence_(FromSeconds(job_.flags.lease_seconds), FromSeconds(job_.flags.grace_seconds)),
      inputs_(kQueuedEvents) {
  if (!options_.master_addr.empty()) job_.master_addr = options_.master_addr;
  for (HostDaemon* const daemon : daemons) {
    prepared_.push_back({.daemon = daemon, .number = static_cast<int>(prepared_.size())});
  }
}

JobOutcome JobController::Run() {
  RestartPolicy restarts(job_.flags.max_restarts);
  JobOutcome outcome;
  for (int generation = job_.purpose.first_generation;; ++generation) {
    const StatusOr<RankProgram> program = program_->ForGeneration(generation);
    if (!program.ok()) return MakeProgramVerdict(program.status(), generation);
    for (const std::string& notice : program->notices) observer_->OnNotice(notice);
    if (generation == job_.purpose.first_generation) {
      outcome = PrepareHosts(*program, generation);
    } else if (ReplaceLostHosts(*program, generation)) {
      outcome = LeaseNewPort(*program, generation);
    } else {
      if (stop_->signal() != 0) return MakeUserStopVerdict(stop_->signal(), generation);
      return outcome;  // nothing follows that would have to wait for the lost hosts' ranks
    }
    if (outcome.ok()) outcome = TakeEarlyEnd(generation);
    if (outcome.ok()) {
      GenerationRun run(generation, job_, prepared_, {observer_, &inputs_, options_.input, stop_});
      outcome = run.Run(*program);
      for (const int node_rank : run.lost()) lost_[node_rank] = run.HasEnded(node_rank);
      unended_ = run.unended();
    }
    if (outcome.ok()) return outcome;
    outcome = JudgeOwnPause(outcome);
    stop_->Enter(JobPhase::kPreparing);  // what the user wants from now on is not overlooked below
    const RestartDecision decision = restarts.Decide(outcome.failure(), ExplainNoGeneration());
    if (!decision.restart) {
      if (job_.flags.max_restarts > 0) observer_->OnNotice("not restarted: " + decision.reason);
      return outcome;
    }
    observer_->OnNotice(outcome.failure().message + "; " + decision.reason);
  }
}

StopStep JobController::OnSignal(int signal) {
  const StopStep step = IsForwarded(signal) ? StopStep::kNothing : stop_->OnSignal(signal);
  inputs_.PutUrgent({.signal = signal});
  return step;
}

JobOutcome JobController::PrepareHosts(const RankProgram& program, int generation) {
  const std::size_t count = prepared_.size();
  std::vector<std::future<StatusOr<v1::PrepareResponse>>> answers;
  answers.reserve(count);
  // A thread for a single host would only cost time; where no more are to be had, hosts are asked
  // one after the other.
  const std::launch how =
      count == 1 ? std::launch::deferred : std::launch::async | std::launch::deferred;
  for (std::size_t i = 0; i < count; ++i) {
    answers.push_back(std::async(how, [&, i] {
      return prepared_[i].daemon->Prepare(
          MakePrepareRequest(job_, program, static_cast<int>(i), generation));
    }));
  }
  for (const auto& answer : answers) answer.wait();
  if (stop_->signal() != 0) return MakeUserStopVerdict(stop_->signal(), generation);
  std::vector<Verdict> refusals;
  for (std::size_t i = 0; i < count; ++i) {
    const JobOutcome taken = TakeAnswer(static_cast<int>(i), answers[i].get());
    if (!taken.ok()) refusals.push_back(taken.failure());
  }
  if (refusals.empty()) return BindToCores();
  if (refusals.size() > 1) {  // what is wrong on one host often is on others
    observer_->OnNotice(std::to_string(refusals.size()) + " of " + std::to_string(count) +
                        " hosts refuse the job:");
    for (const Verdict& each : refusals) observer_->OnNotice("  " + each.message);
  }
  return refusals.front();
}

JobOutcome JobController::TakeAnswer(int node_rank, const StatusOr<v1::PrepareResponse>& answer) {
  const JobHost& host = job_.world.hosts[node_rank];
  if (!answer.ok()) return MakeRefusalVerdict(host.host, answer.status());
  prepared_[node_rank].answer = *answer;
  const JobOutcome good = CheckHost(host.host, *answer);
  return good.ok() ? CheckMemory(host, *answer) : good;
}

JobOutcome JobController::CheckMemory(const JobHost& host, const v1::PrepareResponse& response) {
  return Overcommit(CheckHostMemory({job_, *program_, host, response}));
}

JobOutcome JobController::Overcommit(const JobOutcome& fits) {
  if (fits.ok() || !job_.purpose.memory.only_warns) return fits;
  observer_->OnNotice(fits.failure().message + "; " + fits.failure().proof);
  return JobOutcome();
}

JobOutcome JobController::BindToCores() {
  for (std::size_t node_rank = 0; node_rank < prepared_.size(); ++node_rank) {
    const Status bound = BindHost(prepared_[node_rank].answer, static_cast<int>(node_rank), &job_);
    if (!bound.ok()) return MakeCoresVerdict(bound);
    const JobOutcome fits = Overcommit(CheckNodeMemory(
        {job_, *program_, job_.world.hosts[node_rank], prepared_[node_rank].answer}));
    if (!fits.ok()) return fits;
  }
  return JobOutcome();
}

std::string JobController::ExplainNoGeneration() const {
  if (stop_->signal() != 0) return "the user stopped the job";
  return unended_.empty() ? ExplainMissingHosts() : unended_;
}

std::string JobController::ExplainMissingHosts() const {
  if (lost_.empty()) return "";
  const JobHost& first = job_.world.hosts[lost_.begin()->first];
  const std::string gone = "host " + first.host + " is gone";
  if (lost_.contains(0) && !job_.flags.master_addr.empty()) {
    return gone + ", and --master_addr names it: another cannot take its place";
  }
  std::vector<int> slot_counts;
  for (const auto& [node_rank, ended] : lost_) {
    slot_counts.push_back(job_.world.hosts[node_rank].rank_count());
  }
  if (spares_.Covers(slot_counts)) return "";
  if (job_.spares.empty()) return gone + ", and there is no spare host";
  return gone + ", and too few spares with as many slots are left";
}

bool JobController::ReplaceLostHosts(const RankProgram& program, int generation) {
  for (const auto& [node_rank, ended] : lost_) GiveUp(node_rank, ended);
  for (const auto& [node_rank, ended] : lost_) {
    if (!ReplaceHost(node_rank, program, generation)) return false;
  }
  lost_.clear();
  return true;
}

void JobController::GiveUp(int node_rank, bool ended) {
  HostDaemon* const daemon = prepared_[node_rank].daemon;
  daemon->Abandon();  // its lease is not renewed from now on
  daemon->HangUp();
  daemon->AwaitProcesses();
  if (!ended && daemon->leased()) {
    fence_.Add(job_.world.hosts[node_rank].host, daemon->LeaseFrom());
  }
}

bool JobController::ReplaceHost(int node_rank, const RankProgram& program, int generation) {
  const std::string lost = job_.world.hosts[node_rank].host;
  PreparedHost& place = prepared_[node_rank];
  while (const auto index = spares_.Take(job_.world.hosts[node_rank].rank_count())) {
    const JobHost& spare = job_.spares[*index];
    const StatusOr<StartedSpare> started = options_.spares->StartSpare(*index, node_rank);
    if (!started.ok()) {
      observer_->OnNotice("spare host " + spare.host + ": " + started.status().message());
      continue;
    }
    PutInPlace(spare, node_rank, &job_);
    place.daemon = started->daemon;
    place.number = job_.spare_number(*index);
    job_.master_addr = started->master_addr;
    JobOutcome ready = TakeAnswer(node_rank, started->daemon->Prepare(MakePrepareRequest(
                                                 job_, program, node_rank, generation)));
    if (ready.ok()) ready = BindToCores();
    if (ready.ok()) {
      observer_->OnNotice("spare host " + spare.host + " takes the place of host " + lost);
      return true;
    }
    observer_->OnNotice("spare " + ready.failure().message);
  }
  observer_->OnNotice("not restarted: no spare host could take the place of host " + lost);
  return false;
}

// At the port of the last generation a rank of it may still knock.
JobOutcome JobController::LeaseNewPort(const RankProgram& program, int generation) {
  const std::string& host = job_.world.hosts.front().host;
  const auto answer =
      prepared_.front().daemon->Prepare(MakePrepareRequest(job_, program, 0, generation));
  if (!answer.ok()) {
    if (!NobodyAnswered(answer.status())) return MakeRefusalVerdict(host, answer.status());
    lost_[0] = true;
    return MakeDaemonLostVerdict(host, answer.status().message(), generation);
  }
  for (const v1::Finding& finding : answer->findings()) {
    if (finding.level() == v1::Finding::FAIL) return MakeFindingVerdict(host, finding);
  }
  prepared_.front().answer.set_master_port(answer->master_port());
  return JobOutcome();
}

JobOutcome JobController::JudgeOwnPause(JobOutcome outcome) const {
  if (options_.leases == nullptr) return outcome;
  const std::optional<OwnPause> pause = options_.leases->FindOwnPause();
  if (!pause.has_value()) return outcome;
  Verdict verdict = outcome.failure();
  const bool is_loss = verdict.cause == Cause::kHostLost || verdict.cause == Cause::kDaemonLost;
  const bool is_leased =
      std::any_of(job_.world.hosts.begin(), job_.world.hosts.end(),
                  [&](const JobHost& host) { return host.remote && host.host == verdict.host; });
  if (is_loss && is_leased) return MakeSuspendedVerdict(*pause, verdict);
  // It may be what came of it: leases do not run out in the same moment, and ranks fail whose peers
  // are gone.
  if (verdict.rank >= 0) AddSuspension(*pause, &verdict);
  return verdict;
}

JobOutcome JobController::CheckHost(const std::string& host, const v1::PrepareResponse& response) {
  for (const v1::Finding& finding : response.findings()) {
    if (finding.level() == v1::Finding::FAIL) return MakeFindingVerdict(host, finding);
  }
  if (const std::string skew = DescribeClockSkew(host, response.unix_nanos()); !skew.empty()) {
    observer_->OnNotice(skew);
  }
  observer_->OnPrepared(host, response);
  return JobOutcome();
}

JobOutcome JobController::TakeEarlyEnd(int generation) {
  if (fence_.Remaining(BootTime()) > Fence::Time(0))
    observer_->OnNotice(fence_.Explain(BootTime()));
  for (;;) {
    if (stop_->signal() != 0) return MakeUserStopVerdict(stop_->signal(), generation);
    const auto closed = fence_.Remaining(BootTime());
    const auto input = inputs_.Take(std::chrono::ceil<std::chrono::milliseconds>(closed));
    if (!input.has_value() && closed == closed.zero()) return JobOutcome();
    if (!input.has_value()) continue;
    if (IsForwarded(input->signal)) {
      observer_->OnNotice("signal " + std::to_string(input->signal) +
                          " came while no rank was running and has no effect");
      continue;
    }
    if (!input->host_change.has_value() || input->host_change->grade != HostGrade::kLost) continue;
    const std::optional<int> node_rank = FindNodeRank(prepared_, input->host_change->host);
    if (!node_rank.has_value()) continue;
    lost_[*node_rank] = true;
    return MakeHostLostVerdict(job_.world.hosts[*node_rank].host, *input->host_change, generation);
  }
}

}  // namespace ds::cli
