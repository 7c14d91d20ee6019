#pragma once

// FailureJudge evaluates the events of one generation and determines which rank or host failed
// first, and why.
//
// "First" is the first rank, by the clocks of the hosts, that failed while no stop was in progress;
// where the clocks do not tell, the first in the order seen by the controller (failure_order.h).
// Consequences are never blamed: if a rank reports that it ended because another one was missing,
// the blame goes to a rank that failed for a reason of its own, or to a lost host, even if that is
// later; otherwise to the missing rank, although it is alive.
//
// Pure: no I/O, no clock. Not thread-safe.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/host/host_clock.h"
#include "cli/host/lease_keeper.h"
#include "cli/job/verdict/failure_order.h"
#include "cli/job/verdict/stopped_ranks.h"
#include "cli/job/verdict/verdict.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class FailureJudge {
 public:
  explicit FailureJudge(int generation) : generation_(generation) {}

  // `when` is the time of a rank's end, by this machine's clock; nullopt: unknown.
  void OnEvent(const std::string& host, const v1::Event& event,
               const std::optional<TimeRange>& when = std::nullopt);
  // Records that the user stops the job with SIGINT, SIGTERM or SIGHUP. Only the first signal
  // counts, and only if no rank has failed before.
  void OnUserStop(int signal);
  // Records that Launch failed on a host: an error of its daemon, or no response.
  void OnLaunchFailed(const std::string& host, const Status& status);
  // Records that a host's event stream ended before its generation.
  void OnDaemonLost(const std::string& host, const std::string& why);
  // Records a stopped rank that other ranks wait for.
  void OnStall(const StalledRank& stalled);
  // Records that a host was silent for the duration of its lease. A second call for the host adds
  // the result of a probe.
  void OnHostLost(const std::string& host, const HostChange& change);

  // Records the verdict that an agent which was killed had found. That on the end of a rank counts
  // if nothing here tells more than that ranks were stopped, because the rank's host tells of it
  // again. Any other is final: what follows are its consequences.
  void OnEarlierVerdict(Verdict verdict);

  // Returns true as soon as the generation must end.
  bool failed() const { return !failed_.empty() || other_.has_value(); }

  // Call it after the end of every host's stream. Success: every rank ended with status 0.
  JobOutcome Conclude() const;

 private:
  struct StartedRank {
    std::string host;
    int pid = 0;
  };

  // A rank's report of missing ranks: the kind of absence and at least one of them.
  struct Testimony {
    int witness = 0;
    v1::RankError error;
  };

  // Returns true if the rank ended because another rank was missing, according to its report. A
  // rank that a signal killed has failed by itself, despite its report.
  bool IsConsequence(const v1::RankExited& exit) const;
  // Returns true if a rank that failed during a stop would have failed without the stop.
  bool FailedAnyway(const v1::RankExited& exit) const;
  // Returns true while no root cause is known: nothing failed, or only consequences.
  bool IsOpen() const { return !other_ && FindRoots().empty(); }
  // Returns the failures without a stop that are not consequences.
  std::vector<const FailedExit*> FindRoots() const;

  void OnReport(const v1::RankReport& report);
  // Returns the verdict on the missing rank, as the first report of a missing live rank describes
  // it.
  Verdict ConvictAbsent() const;
  void OnExit(FailedExit failed);
  void OnGenerationEnded(const std::string& host, v1::StopCause cause);
  // Sets the verdict. Only the first counts, and only if no rank has failed before.
  void Blame(Verdict verdict);
  // Sets the verdict of a loss, which also replaces the blame of a rank that reported a missing
  // rank.
  void BlameLoss(Verdict verdict);
  Verdict Convict(const FailedExit& culprit) const;
  // Returns the verdict on the first of the failures, which are not empty.
  Verdict ConvictFirst(const std::vector<const FailedExit*>& failures) const;
  std::optional<std::int64_t> LastStep(int rank) const;

  const int generation_;
  std::map<int, std::int64_t> last_step_;  // by rank
  std::map<int, v1::RankError> errors_;    // by rank: its first report
  std::map<int, StartedRank> processes_;   // by rank
  std::set<int> left_;                     // ranks that reported their end before any failed
  std::optional<Testimony> testimony_;     // the first report of missing live ranks
  // By arrival. A daemon stops the ranks of its host at their first failure, so that these are few.
  std::vector<FailedExit> failed_;   // the failures without a stop
  std::vector<FailedExit> stopped_;  // the failures during a stop
  std::optional<Verdict> other_;     // another first cause: the user's stop, a lost daemon
  std::optional<Verdict> earlier_;   // of another agent, on the end of a rank
  std::optional<int> lost_host_;     // the number of the host whose loss is other_
};

}  // namespace ds::cli
