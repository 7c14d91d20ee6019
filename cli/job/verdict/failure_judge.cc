#include "cli/job/verdict/failure_judge.h"

#include <csignal>
#include <utility>

#include "cli/host/host_daemon.h"
#include "cli/job/verdict/make_verdict.h"

namespace ds::cli {
namespace {

// The code of the error that a rank reports if another rank was missing.
constexpr auto kUnavailable = static_cast<std::int64_t>(StatusCode::kUnavailable);

bool EndedBadly(const v1::RankExited& exit) { return exit.exit_code() != 0 || exit.signal() != 0; }

// Returns true if the verdict is on a rank that ended by itself.
bool IsOnEndOfRank(const Verdict& verdict) {
  switch (verdict.cause) {
    case Cause::kPreflight:
    case Cause::kLaunch:
    case Cause::kHostLost:
    case Cause::kDaemonLost:
    case Cause::kStall:
    case Cause::kSuspended:
    case Cause::kUserStop:
    case Cause::kInternal:
      return false;
    default:
      return true;
  }
}

template <typename Predicate>
std::vector<const FailedExit*> Select(const std::vector<FailedExit>& failures, Predicate is_taken) {
  std::vector<const FailedExit*> selected;
  for (const FailedExit& each : failures) {
    if (is_taken(each)) selected.push_back(&each);
  }
  return selected;
}

}  // namespace

void FailureJudge::OnEvent(const std::string& host, const v1::Event& event,
                           const std::optional<TimeRange>& when) {
  switch (event.what_case()) {
    case v1::Event::kRankStarted:
      processes_[static_cast<int>(event.rank_started().rank())] = {
          .host = host, .pid = static_cast<int>(event.rank_started().pid())};
      break;
    case v1::Event::kRankReport:
      OnReport(event.rank_report());
      break;
    case v1::Event::kRankExited:
      OnExit({.host = host, .exit = event.rank_exited(), .when = when});
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
    const bool tells =
        report.error().absence() != v1::RankError::NONE && !report.error().absent().empty();
    if (tells && !testimony_.has_value()) testimony_ = Testimony{rank, report.error()};
  } else if (report.has_end() && !failed()) {  // not because of a stop
    left_.insert(rank);
  }
}

void FailureJudge::OnExit(FailedExit failed) {
  if (!EndedBadly(failed.exit)) return;
  if (failed.exit.stopping()) {
    stopped_.push_back(std::move(failed));  // rarely the first failure
  } else if (!other_.has_value()) {
    failed_.push_back(std::move(failed));
  }
}

bool FailureJudge::IsConsequence(const v1::RankExited& exit) const {
  const auto error = errors_.find(static_cast<int>(exit.rank()));
  return exit.signal() == 0 && error != errors_.end() && error->second.code() == kUnavailable;
}

std::vector<const FailedExit*> FailureJudge::FindRoots() const {
  return Select(failed_, [this](const FailedExit& each) { return !IsConsequence(each.exit); });
}

// A daemon stops ranks with SIGTERM and SIGKILL, so only other signals are a rank's own failure. A
// rank that has reported an error may be stopped before its process ends.
bool FailureJudge::FailedAnyway(const v1::RankExited& exit) const {
  if (exit.signal() != 0 && !IsSignalOfStop(exit.signal())) return true;
  const int rank = static_cast<int>(exit.rank());
  const auto error = errors_.find(rank);
  if (error != errors_.end()) return error->second.code() != kUnavailable;
  // It had ended its work by itself, with a status of its own.
  return exit.signal() == 0 && left_.contains(rank);
}

void FailureJudge::OnEarlierVerdict(Verdict verdict) {
  (IsOnEndOfRank(verdict) ? earlier_ : other_) = std::move(verdict);
}

void FailureJudge::OnUserStop(int signal) { Blame(MakeUserStopVerdict(signal, generation_)); }

void FailureJudge::OnLaunchFailed(const std::string& host, const Status& status) {
  if (NobodyAnswered(status)) {
    const std::string code(StatusCodeName(status.code()));
    OnDaemonLost(host, "Launch ended with " + code + ": " + status.message());
    return;
  }
  Blame(MakeLaunchVerdict(host, status, generation_));
}

void FailureJudge::OnDaemonLost(const std::string& host, const std::string& why) {
  BlameLoss(MakeDaemonLostVerdict(host, why, generation_));
}

void FailureJudge::OnHostLost(const std::string& host, const HostChange& change) {
  if (IsOpen()) {
    lost_host_ = change.host;
  } else if (lost_host_ != change.host) {
    return;
  }
  failed_.clear();
  other_ = MakeHostLostVerdict(host, change, generation_);
}

void FailureJudge::OnStall(const StalledRank& stalled) {
  Verdict verdict = MakeStallVerdict(stalled, generation_);
  verdict.step = LastStep(stalled.rank);
  BlameLoss(std::move(verdict));
}

// A daemon may stop its ranks for a reason of its own. The verdict is then that reason, and not the
// signal that ended the ranks.
void FailureJudge::OnGenerationEnded(const std::string& host, v1::StopCause cause) {
  if (cause == v1::STOP_LEASE_EXPIRED) Blame(MakeLeaseExpiredVerdict(host, generation_));
  if (cause == v1::STOP_CONTROLLER_GONE) Blame(MakeDisconnectedVerdict(host, generation_));
  if (cause == v1::STOP_DAEMON_SIGNALLED) Blame(MakeDaemonSignalledVerdict(host, generation_));
}

void FailureJudge::Blame(Verdict verdict) {
  if (!failed()) other_ = std::move(verdict);
}

void FailureJudge::BlameLoss(Verdict verdict) {
  if (!IsOpen()) return;
  failed_.clear();
  other_ = std::move(verdict);
}

// In order of preference: a failure with its own reason, the missing rank (if it ever started), the
// first failure although it is a consequence, another cause, the verdict of an earlier agent, a
// failure during a stop.
JobOutcome FailureJudge::Conclude() const {
  if (const auto roots = FindRoots(); !roots.empty()) return ConvictFirst(roots);
  const auto all = [](const FailedExit&) { return true; };
  if (!failed_.empty()) {
    const auto anyway =
        Select(stopped_, [this](const FailedExit& each) { return FailedAnyway(each.exit); });
    if (!anyway.empty()) return ConvictFirst(anyway);
    if (testimony_.has_value() &&
        processes_.contains(static_cast<int>(testimony_->error.absent(0)))) {
      return ConvictAbsent();
    }
    return ConvictFirst(Select(failed_, all));
  }
  if (other_.has_value()) {
    Verdict verdict = *other_;
    // Most of these verdicts are not about one rank; rank 0's step then stands for the job's.
    if (!verdict.step.has_value()) verdict.step = LastStep(0);
    return verdict;
  }
  if (earlier_.has_value()) return *earlier_;
  if (!stopped_.empty()) return ConvictFirst(Select(stopped_, all));
  return JobOutcome();
}

Verdict FailureJudge::ConvictAbsent() const {
  const auto& [witness, error] = *testimony_;
  const int absent = static_cast<int>(error.absent(0));
  const auto rank_of = [&](int rank) {
    const auto found = processes_.find(rank);
    return found == processes_.end() ? StartedRank() : found->second;
  };
  Verdict verdict = MakeAbsenceVerdict({.rank = absent,
                                        .host = rank_of(absent).host,
                                        .pid = rank_of(absent).pid,
                                        .witness = witness,
                                        .witness_host = rank_of(witness).host,
                                        .error = error},
                                       generation_);
  verdict.step = LastStep(absent);
  return verdict;
}

Verdict FailureJudge::ConvictFirst(const std::vector<const FailedExit*>& failures) const {
  const FailedExit& first = *FindFirst(failures);
  Verdict verdict = Convict(first);
  // What a stop does to the ranks of a host says nothing about the cause.
  const std::string next = first.exit.stopping() ? "" : DescribeNext(first, failures);
  if (!next.empty()) verdict.proof += "; " + next;
  return verdict;
}

Verdict FailureJudge::Convict(const FailedExit& culprit) const {
  const int rank = static_cast<int>(culprit.exit.rank());
  const auto error = errors_.find(rank);
  return MakeRankVerdict({.host = culprit.host,
                          .exit = culprit.exit,
                          .error = error == errors_.end() ? nullptr : &error->second,
                          .last_step = LastStep(rank)},
                         generation_);
}

std::optional<std::int64_t> FailureJudge::LastStep(int rank) const {
  const auto found = last_step_.find(rank);
  return found == last_step_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ds::cli
