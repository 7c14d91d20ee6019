#include "cli/job/job_controller.h"

#include <cstdlib>
#include <future>
#include <numeric>
#include <utility>

#include "cli/exit_codes.h"
#include "cli/job/restart_policy.h"
#include "runtime/base/clock.h"

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
                 .exit_code = checkpoint ? kExitCheckpoint : kExitInternal,
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

}  // namespace

JobController::JobController(JobRequest job, std::vector<HostDaemon*> daemons,
                             JobObserver* observer, InputForwarder* input)
    : job_(std::move(job)),
      observer_(observer),
      prepared_{.daemons = std::move(daemons)},
      standard_input_(input),
      inputs_(kQueuedEvents) {
  prepared_.numbers.resize(prepared_.daemons.size());
  std::iota(prepared_.numbers.begin(), prepared_.numbers.end(), 0);
}

std::optional<Verdict> JobController::Run() {
  RestartPolicy restarts(job_.max_restarts);
  for (int generation = job_.first_generation;; ++generation) {
    const StatusOr<RankProgram> program = job_.program(generation);
    if (!program.ok()) return ProgramVerdict(program.status(), generation);
    for (const std::string& notice : program->notices) observer_->OnNotice(notice);
    std::optional<Verdict> verdict;
    if (generation == job_.first_generation) verdict = PrepareHosts(*program);
    if (!verdict.has_value()) verdict = TakeEarlyEnd(generation);
    if (!verdict.has_value()) {
      GenerationRun run(generation, job_, prepared_, {observer_, &inputs_, standard_input_});
      verdict = run.Run(*program);
    }
    if (!verdict.has_value()) return std::nullopt;
    const RestartDecision decision = restarts.Decide(*verdict);
    if (!decision.restart) {
      if (job_.max_restarts > 0) observer_->OnNotice("not restarted: " + decision.reason);
      return verdict;
    }
    observer_->OnNotice(verdict->message + "; " + decision.reason);
  }
}

std::optional<Verdict> JobController::PrepareHosts(const RankProgram& program) {
  std::vector<std::future<StatusOr<v1::PrepareResponse>>> answers;
  answers.reserve(prepared_.daemons.size());
  // A thread for a single host would only cost time.
  const std::launch how =
      prepared_.daemons.size() == 1 ? std::launch::deferred : std::launch::async;
  for (std::size_t i = 0; i < prepared_.daemons.size(); ++i) {
    answers.push_back(std::async(how, [&, i] {
      return prepared_.daemons[i]->Prepare(MakePrepareRequest(job_, static_cast<int>(i), program));
    }));
  }
  std::optional<Verdict> refused;
  std::vector<v1::PrepareResponse> responses;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::string& host = job_.plan.hosts[i].host;
    StatusOr<v1::PrepareResponse> answer = answers[i].get();
    std::optional<Verdict> verdict;
    if (!answer.ok()) {
      verdict = PreflightVerdict(
          host, "host " + host + ": " + answer.status().message(),
          "Prepare answered " + std::string(StatusCodeName(answer.status().code())), "");
    } else {
      verdict = CheckHost(host, *answer);
      prepared_.core_counts.push_back(static_cast<int>(answer->core_count()));
      if (i == 0) prepared_.master_port = static_cast<int>(answer->master_port());
      responses.push_back(*std::move(answer));
    }
    if (verdict.has_value() && !refused.has_value()) refused = std::move(verdict);
  }
  if (refused.has_value()) return refused;
  const Status bound = BindHosts(responses, &job_);
  if (bound.ok()) return std::nullopt;
  return PreflightVerdict("", bound.message(), "the cores of the hosts were counted",
                          "use fewer ranks a host, or leave --bind_cores_to_rank out");
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
    failures.OnHostLost(job_.plan.hosts[*node_rank].host, *input->host_change);
    return failures.Conclude();
  }
  return std::nullopt;
}

}  // namespace ds::cli
