#pragma once

// FailureJudge: listens to one generation's events and says in the end who failed first and why.
//
// First means first in the order in which the controller saw it: the first rank that ended badly
// while nobody was stopping it. What other ranks say or do because of that never takes the blame:
// a rank that says itself that it ended because another one was not there gives the blame to a rank
// that failed for a reason of its own, or to a host that is lost, even when that is seen later;
// and else to the rank that it found missing though it lives.
//
// Pure: no I/O, no clock. Threads: one at a time.

#include <map>
#include <optional>
#include <string>

#include "cli/host/lease_keeper.h"
#include "cli/job/verdict/stopped_ranks.h"
#include "cli/job/verdict/verdict.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class FailureJudge {
 public:
  explicit FailureJudge(int generation) : generation_(generation) {}

  void OnEvent(const std::string& host, const v1::Event& event);
  // The user stops the job with SIGINT, SIGTERM or SIGHUP. Only the first counts, and only when no
  // rank has failed before.
  void OnUserStop(int signal);
  // A host answered a Launch with an error: its daemon's refusal, or nobody there to answer.
  void OnLaunchFailed(const std::string& host, const Status& status);
  // A host's event stream ended without its job having ended.
  void OnDaemonLost(const std::string& host, const std::string& why);
  // A rank stands still while others wait for it.
  void OnStall(const StalledRank& stalled);
  // Nothing was heard from a host for the time of its lease.
  void OnHostLost(const std::string& host, const HostChange& change);

  // True as soon as it is certain that the generation must end.
  bool failed() const { return culprit_.has_value() || other_.has_value(); }

  // Call when every host's stream has ended. Good: every rank ended with status 0.
  JobOutcome Conclude() const;

 private:
  struct Culprit {
    std::string host;
    v1::RankExited exit;
  };

  struct StartedRank {
    std::string host;
    int pid = 0;
  };

  // A rank has told of others that did not come: how, and at least one of them.
  struct Testimony {
    int witness = 0;
    v1::RankError error;
  };

  // True when the rank said that another one was not there.
  bool IsConsequence(const Culprit& culprit) const;
  // True when a rank that ended badly while it was being stopped did so for a reason of its own:
  // the stop has met it on its way out.
  bool FailedAnyway(const v1::RankExited& exit) const;
  // True while nothing has failed that is not a consequence.
  bool IsOpen() const { return !other_ && (!culprit_ || IsConsequence(*culprit_)); }

  void OnReport(const v1::RankReport& report);
  // Says who was missed, as the first rank told that found a living one missing.
  Verdict ConvictAbsent() const;
  void OnExit(const std::string& host, const v1::RankExited& exit);
  void OnGenerationEnded(const std::string& host, v1::StopCause cause);
  // Only the first counts, and only when no rank has failed before.
  void Blame(Verdict verdict);
  // A loss takes the blame from a rank that says that it missed another one, too.
  void BlameLoss(Verdict verdict);
  Verdict Convict(const Culprit& culprit) const;
  std::optional<std::int64_t> LastStep(int rank) const;

  const int generation_;
  std::map<int, std::int64_t> last_step_;  // by rank
  std::map<int, v1::RankError> errors_;    // by rank: the first that it reported
  std::map<int, StartedRank> processes_;   // by rank
  std::optional<Testimony> testimony_;     // the first of a rank that missed living ones
  std::optional<Culprit> culprit_;         // the first rank that failed
  std::optional<Culprit> stopped_badly_;   // the first that ended badly while being stopped
  std::optional<Culprit> failed_anyway_;   // ... and for a reason of its own
  std::optional<Verdict> other_;           // what else came first: a user's stop, a lost daemon
};

}  // namespace ds::cli
