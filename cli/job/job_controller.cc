#include "cli/job/job_controller.h"

#include <cstdlib>
#include <future>
#include <numeric>
#include <utility>

#include "cli/job/restart_policy.h"
#include "runtime/base/clock.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

// Events on their way from the daemons to the observer; each holds at most 1 MiB of output.
constexpr std::size_t kQueuedEvents = 64;

Verdict PreflightVerdict(const std::string& host, const std::string& message,
                         const std::string& proof, const std::string& hint) {
  return Verdict{.cause = Cause::kPreflight,
                 .host = host,
                 .exit_code = kExitPreflight,
                 .message = message,
                 .proof = proof,
                 .hint = hint};
}

// Why the program of a generation could not be made.
Verdict ProgramVerdict(const Status& status, int generation) {
  const bool checkpoint =
      status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kNotFound;
  return Verdict{.cause = checkpoint ? Cause::kCheckpoint : Cause::kInternal,
                 .exit_code = checkpoint ? kExitCheckpoint : kExitFailure,
                 .generation = generation,
                 .message = status.message(),
                 .proof = std::string(StatusCodeName(status.code()))};
}

// A host's clock that is far from ours, in words; "" when it is near or not told. The answer took
// its time, so that small differences mean nothing.
std::string ClockSkew(const std::string& host, std::int64_t host_unix_nanos) {
  constexpr std::int64_t kNoticed = 10;
  const std::int64_t seconds = (host_unix_nanos - Clock::System().UnixNanos()) / 1'000'000'000;
  if (host_unix_nanos == 0 || std::abs(seconds) < kNoticed) return "";
  return "host " + host + ": its clock is " + std::to_string(std::abs(seconds)) + " s " +
         (seconds > 0 ? "ahead" : "behind") + "; the times of its events are off by that";
}

std::vector<int> SlotCounts(const std::vector<SpareHost>& spares) {
  std::vector<int> counts;
  for (const SpareHost& spare : spares)
    counts.push_back(static_cast<int>(spare.slots.slots.size()));
  return counts;
}

}  // namespace

JobController::JobController(JobRequest job, std::vector<HostDaemon*> daemons,
                             JobObserver* observer, const Partners& partners)
    : job_(std::move(job)),
      observer_(observer),
      prepared_{.daemons = std::move(daemons)},
      partners_(partners),
      spares_(SlotCounts(job_.spares)),
      inputs_(kQueuedEvents) {
  prepared_.numbers.resize(prepared_.daemons.size());
  std::iota(prepared_.numbers.begin(), prepared_.numbers.end(), 0);
}

std::optional<Verdict> JobController::Run() {
  RestartPolicy restarts(job_.max_restarts);
  std::optional<Verdict> verdict;
  for (int generation = job_.first_generation;; ++generation) {
    const StatusOr<RankProgram> program = job_.program(generation);
    if (!program.ok()) return ProgramVerdict(program.status(), generation);
    for (const std::string& notice : program->notices) observer_->OnNotice(notice);
    if (generation == job_.first_generation) {
      verdict = PrepareHosts();
    } else if (ReplaceLostHosts()) {
      verdict.reset();
    } else {
      const std::optional<Verdict> stopped = TakeEarlyEnd(generation);
      return stopped.has_value() ? stopped : verdict;
    }
    if (!verdict.has_value()) verdict = TakeEarlyEnd(generation);
    if (!verdict.has_value()) {
      GenerationRun run(generation, job_, prepared_, {observer_, &inputs_, partners_.input});
      verdict = run.Run(*program);
      lost_.insert(run.lost().begin(), run.lost().end());
    }
    if (!verdict.has_value()) return std::nullopt;
    const RestartDecision decision = restarts.Decide(*verdict, WhyIncomplete());
    if (!decision.restart) {
      if (job_.max_restarts > 0) observer_->OnNotice("not restarted: " + decision.reason);
      return verdict;
    }
    observer_->OnNotice(verdict->message + "; " + decision.reason);
  }
}

std::optional<Verdict> JobController::PrepareHosts() {
  const std::size_t count = prepared_.daemons.size();
  prepared_.core_counts.resize(count);
  preparations_.resize(count);
  std::vector<std::future<StatusOr<v1::PrepareResponse>>> answers;
  answers.reserve(count);
  // A thread for a single host would only cost time.
  const std::launch how = count == 1 ? std::launch::deferred : std::launch::async;
  for (std::size_t i = 0; i < count; ++i) {
    answers.push_back(std::async(how, [&, i] {
      return prepared_.daemons[i]->Prepare(MakePrepareRequest(job_, static_cast<int>(i)));
    }));
  }
  std::vector<Verdict> refusals;
  for (std::size_t i = 0; i < count; ++i) {
    std::optional<Verdict> verdict = TakeAnswer(static_cast<int>(i), answers[i].get());
    if (verdict.has_value()) refusals.push_back(*std::move(verdict));
  }
  if (refusals.empty()) return BindToCores();
  if (refusals.size() > 1) {  // what is wrong on one host often is on others
    observer_->OnNotice(std::to_string(refusals.size()) + " of " + std::to_string(count) +
                        " hosts refuse the job:");
    for (const Verdict& each : refusals) observer_->OnNotice("  " + each.message);
  }
  return refusals.front();
}

std::optional<Verdict> JobController::TakeAnswer(int node_rank,
                                                 const StatusOr<v1::PrepareResponse>& answer) {
  const std::string& host = job_.plan.hosts[node_rank].host;
  if (!answer.ok()) {
    return PreflightVerdict(
        host, "host " + host + ": " + answer.status().message(),
        "Prepare answered " + std::string(StatusCodeName(answer.status().code())), "");
  }
  preparations_[node_rank] = *answer;
  prepared_.core_counts[node_rank] = static_cast<int>(answer->core_count());
  if (node_rank == 0) prepared_.master_port = static_cast<int>(answer->master_port());
  return CheckHost(host, *answer);
}

std::optional<Verdict> JobController::BindToCores() {
  const Status bound = BindHosts(preparations_, &job_);
  if (bound.ok()) return std::nullopt;
  return PreflightVerdict("", bound.message(), "the cores of the hosts were counted",
                          "use fewer ranks a host, or leave --bind_cores_to_rank out");
}

std::string JobController::WhyIncomplete() const {
  if (lost_.empty()) return "";
  const PlannedHost& first = job_.plan.hosts[*lost_.begin()];
  const std::string gone = "host " + first.host + " is gone";
  if (lost_.contains(0) && job_.master_addr_named) {
    return gone + ", and --master_addr names it: another cannot take its place";
  }
  std::vector<int> slot_counts;
  for (const int node_rank : lost_) {
    slot_counts.push_back(job_.plan.hosts[node_rank].rank_count());
  }
  if (spares_.Covers(slot_counts)) return "";
  if (job_.spares.empty()) return gone + ", and there is no spare host";
  return gone + ", and too few spares with as many slots are left";
}

bool JobController::ReplaceLostHosts() {
  for (const int node_rank : lost_) {
    if (!ReplaceHost(node_rank)) return false;
  }
  lost_.clear();
  return true;
}

bool JobController::ReplaceHost(int node_rank) {
  const std::string lost = job_.plan.hosts[node_rank].host;
  // Whatever it still runs must end: from now on its lease is not renewed.
  prepared_.daemons[node_rank]->Abandon();
  prepared_.daemons[node_rank]->HangUp();
  while (const auto index = spares_.Take(job_.plan.hosts[node_rank].rank_count())) {
    const SpareHost& spare = job_.spares[*index];
    const StatusOr<StartedSpare> started = partners_.spares->StartSpare(*index, node_rank);
    if (!started.ok()) {
      observer_->OnNotice("spare host " + spare.slots.host + ": " + started.status().message());
      continue;
    }
    PutInPlace(spare, node_rank, &job_);
    prepared_.daemons[node_rank] = started->daemon;
    prepared_.numbers[node_rank] = static_cast<int>(job_.plan.hosts.size()) + *index;
    if (!job_.master_addr_named) job_.master_addr = started->master_addr;
    std::optional<Verdict> refused =
        TakeAnswer(node_rank, started->daemon->Prepare(MakePrepareRequest(job_, node_rank)));
    if (!refused.has_value()) refused = BindToCores();
    if (!refused.has_value()) {
      observer_->OnNotice("spare host " + spare.slots.host + " takes the place of host " + lost);
      return true;
    }
    observer_->OnNotice("spare " + refused->message);
  }
  observer_->OnNotice("not restarted: no spare host could take the place of host " + lost);
  return false;
}

std::optional<Verdict> JobController::CheckHost(const std::string& host,
                                                const v1::PrepareResponse& response) {
  for (const v1::Finding& finding : response.findings()) {
    if (finding.level() == v1::Finding::FAIL) {
      return PreflightVerdict(host, "host " + host + ": " + finding.message(),
                              "preflight check '" + finding.name() + "' failed", finding.hint());
    }
  }
  if (const std::string skew = ClockSkew(host, response.unix_nanos()); !skew.empty()) {
    observer_->OnNotice(skew);
  }
  observer_->OnPrepared(host, response);
  return std::nullopt;
}

std::optional<Verdict> JobController::TakeEarlyEnd(int generation) {
  while (const auto input = inputs_.Take(std::chrono::milliseconds(0))) {
    if (IsForwarded(input->signal)) {
      observer_->OnNotice("signal " + std::to_string(input->signal) +
                          " came while no rank was running and has no effect");
      continue;
    }
    if (input->signal != 0) return UserStopVerdict(input->signal, generation);
    if (!input->host_change.has_value() || input->host_change->grade != HostGrade::kLost) continue;
    const std::optional<int> node_rank = NodeRankOf(prepared_, input->host_change->host);
    if (!node_rank.has_value()) continue;
    FailureObserver failures(generation);
    lost_.insert(*node_rank);
    failures.OnHostLost(job_.plan.hosts[*node_rank].host, *input->host_change);
    return failures.Conclude();
  }
  return std::nullopt;
}

}  // namespace ds::cli
