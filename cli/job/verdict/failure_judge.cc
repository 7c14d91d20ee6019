#include "cli/job/verdict/failure_judge.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "cli/host/host_daemon.h"
#include "cli/job/verdict/exit_explanation.h"
#include "cli/job/verdict/python_error.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    std::size_t end = text.find('\n', start);
    if (end == std::string::npos) end = text.size();
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

Cause CauseOfError(int exit_code) {
  switch (exit_code) {
    case kExitUsage:
      return Cause::kConfig;
    case kExitCheckpoint:
      return Cause::kCheckpoint;
    default:
      return Cause::kRankError;
  }
}

std::string SecondsText(std::chrono::nanoseconds duration) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s",
                std::chrono::duration<double>(duration).count());
  return text.data();
}

std::string TimeText(std::int64_t unix_nanos) {
  const std::time_t seconds = unix_nanos / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text.data();
}

// An exception says more than the status that Python gives every one of them.
void ApplyPythonError(const v1::RankExited& exit, Verdict* verdict) {
  const std::optional<PythonError> error = ParseErrorFile(exit.error_file());
  // One that has handled its exception and was killed later has died of the signal.
  if (!error.has_value() || exit.signal() != 0) return;
  verdict->cause = Cause::kException;
  verdict->message = "rank " + std::to_string(verdict->rank) + " on " + verdict->host + " raised " +
                     error->message;
  if (!error->traceback.empty()) verdict->last_lines = error->traceback;
  verdict->hint.clear();
}

bool EndedBadly(const v1::RankExited& exit) { return exit.exit_code() != 0 || exit.signal() != 0; }

}  // namespace

void FailureJudge::OnEvent(const std::string& host, const v1::Event& event) {
  switch (event.what_case()) {
    case v1::Event::kRankReport:
      OnReport(event.rank_report());
      break;
    case v1::Event::kRankExited:
      OnExit(host, event.rank_exited());
      break;
    case v1::Event::kGenerationEnded:
      OnGenerationEnded(host, event.generation_ended().stop_cause());
      break;
    default:
      break;
  }
}

void FailureJudge::OnReport(const v1::RankReport& report) {
  const int rank = static_cast<int>(report.rank());
  if (report.has_beacon() && report.beacon().has_step()) {
    last_step_[rank] = static_cast<std::int64_t>(report.beacon().step());
  } else if (report.has_step() && report.step().has_step()) {
    last_step_[rank] = static_cast<std::int64_t>(report.step().step());
  } else if (report.has_error()) {
    errors_.try_emplace(rank, report.error());
  }
}

void FailureJudge::OnExit(const std::string& host, const v1::RankExited& exit) {
  if (!EndedBadly(exit)) return;
  if (exit.stopping()) {
    if (!stopped_badly_.has_value()) stopped_badly_ = Culprit{host, exit};
  } else if (!failed() || (IsOpen() && !IsConsequence({host, exit}))) {
    culprit_ = Culprit{host, exit};
  }
}

bool FailureJudge::IsConsequence(const Culprit& culprit) const {
  const auto error = errors_.find(static_cast<int>(culprit.exit.rank()));
  return culprit.exit.signal() == 0 && error != errors_.end() &&
         error->second.code() == static_cast<std::int64_t>(StatusCode::kUnavailable);
}

void FailureJudge::OnUserStop(int signal) {
  if (failed()) return;
  other_ = Verdict{.cause = Cause::kUserStop,
                   .exit_code = ExitStatusOfSignal(signal),
                   .signal = signal,
                   .generation = generation_,
                   .message = "the job was stopped by the user",
                   .proof = "dsrun received " + SignalName(signal)};
}

void FailureJudge::OnLaunchFailed(const std::string& host, const Status& status) {
  const std::string code(StatusCodeName(status.code()));
  if (NobodyAnswered(status)) {
    OnDaemonLost(host, "Launch ended with " + code + ": " + status.message());
    return;
  }
  if (failed()) return;
  other_ = Verdict{.cause = Cause::kLaunch,
                   .host = host,
                   .exit_code = kExitPreflight,
                   .generation = generation_,
                   .message = "host " + host + " could not start its ranks: " + status.message(),
                   .proof = "Launch answered " + code};
}

void FailureJudge::OnDaemonLost(const std::string& host, const std::string& why) {
  if (!IsOpen()) return;
  culprit_.reset();
  other_ = Verdict{.cause = Cause::kDaemonLost,
                   .host = host,
                   .exit_code = kExitHostLost,
                   .generation = generation_,
                   .message = "the daemon of host " + host + " is gone",
                   .proof = why,
                   .hint =
                       "its ranks are stopped by their own daemon or the kernel; see the log of "
                       "the host for who killed dsrund"};
}

void FailureJudge::OnHostLost(const std::string& host, const HostChange& change) {
  if (change.probe.reachability == Reachability::kRefused) {
    OnDaemonLost(host, change.evidence + "; its port: " + change.probe.detail);
    return;
  }
  if (!IsOpen()) return;
  culprit_.reset();
  const bool listens = change.probe.reachability == Reachability::kListening;
  other_ = Verdict{
      .cause = Cause::kHostLost,
      .host = host,
      .exit_code = kExitHostLost,
      .generation = generation_,
      .message =
          "host " + host + " is lost: nothing was heard from it for " + SecondsText(change.silence),
      .proof = "last heard at " + TimeText(change.last_sign_unix_nanos) + "; " + change.evidence +
               "; its port: " + change.probe.detail,
      .hint = listens ? "the host answers but dsrund does not: was it stopped, or is the host out "
                        "of memory or its disk stuck? Its ranks are stopped when dsrund goes on"
                      : "is the host up, and the network to it? Its daemon stops its ranks on its "
                        "own, because it hears nothing from dsrun either"};
}

// Ranks that their daemon stopped for a reason of its own: the signal that ended them is not why.
void FailureJudge::OnGenerationEnded(const std::string& host, v1::StopCause cause) {
  if (failed()) return;
  if (cause == v1::STOP_LEASE_EXPIRED) {
    other_ = Verdict{.cause = Cause::kHostLost,
                     .host = host,
                     .exit_code = kExitHostLost,
                     .generation = generation_,
                     .message = "host " + host +
                                " stopped its ranks: it heard nothing from dsrun for the time of "
                                "its lease",
                     .proof = "the daemon's lease expired",
                     .hint =
                         "was dsrun stopped or its machine suspended? Else look at the "
                         "network between the hosts"};
  } else if (cause == v1::STOP_DAEMON_SIGNALLED) {
    other_ = Verdict{.cause = Cause::kDaemonLost,
                     .host = host,
                     .exit_code = kExitHostLost,
                     .generation = generation_,
                     .message = "the daemon of host " + host + " was told to end",
                     .proof = "dsrund received a signal and stopped its ranks",
                     .hint = "did somebody, a scheduler or a shutdown of the host end it?"};
  }
}

JobOutcome FailureJudge::Conclude() const {
  if (culprit_.has_value()) return FromCulprit(*culprit_);
  if (other_.has_value()) {
    Verdict verdict = *other_;
    verdict.step = LastStep(0);
    return verdict;
  }
  if (stopped_badly_.has_value()) return FromCulprit(*stopped_badly_);
  return JobOutcome();
}

Verdict FailureJudge::FromCulprit(const Culprit& culprit) const {
  const v1::RankExited& exit = culprit.exit;
  const int rank = static_cast<int>(exit.rank());
  const ExitExplanation explanation = ExplainExit(exit);
  Verdict verdict{
      .cause = explanation.cause,
      .rank = rank,
      .host = culprit.host,
      .exit_code = exit.signal() == 0 ? exit.exit_code() : ExitStatusOfSignal(exit.signal()),
      .signal = exit.signal(),
      .generation = generation_,
      .step = LastStep(rank),
      .message = "rank " + std::to_string(rank) + " on " + culprit.host + " " + explanation.what,
      .proof = explanation.proof,
      .last_lines = SplitLines(exit.last_stderr()),
      .hint = explanation.hint,
      .pid = static_cast<int>(exit.pid()),
      .evidence = MakeExitEvidence(exit)};
  ApplyPythonError(exit, &verdict);
  if (const auto error = errors_.find(rank); error != errors_.end() && exit.signal() == 0) {
    verdict.cause = CauseOfError(exit.exit_code());
    verdict.message = error->second.message();
    verdict.hint = error->second.hint();
  }
  return verdict;
}

std::optional<std::int64_t> FailureJudge::LastStep(int rank) const {
  const auto found = last_step_.find(rank);
  return found == last_step_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ds::cli
