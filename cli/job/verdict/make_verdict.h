#pragma once

// The verdicts: one function for each way in which a job can fail, which says it in words.
// FailureJudge decides which of them it is.
//
// Pure: no I/O, no clock. Threads: plain functions.

#include <cstdint>
#include <optional>
#include <string>

#include "cli/host/lease_keeper.h"
#include "cli/job/verdict/stopped_ranks.h"
#include "cli/job/verdict/verdict.h"
#include "cli/remote/host_failure.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// Before any rank runs.

// No daemon starts here, or those of other hosts cannot be started from here.
Verdict MakeStartVerdict(const Status& started);
// SSH does not lead to the host, or no daemon starts there.
Verdict MakeUnreachableVerdict(const FailedHost& failed);
// The host's daemon answered Prepare with an error.
Verdict MakeRefusalVerdict(const std::string& host, const Status& answer);
// It has found what would stop the job.
Verdict MakeFindingVerdict(const std::string& host, const v1::Finding& finding);
// Its ranks will hold more than it has. `advice` says what would fit.
struct MemoryShortage {
  int ranks = 0;
  std::int64_t rank_bytes = 0;  // of each
  std::int64_t needed = 0;      // of all of them, with what they share
  std::int64_t available = 0;
  std::string parts;  // of what a rank needs
  std::string nodes;  // of the host, to whose memory these are bound; "": to none
};
Verdict MakeMemoryVerdict(const std::string& host, const MemoryShortage& shortage,
                          const std::string& advice);
// The ranks cannot be bound to the cores of the hosts.
Verdict MakeCoresVerdict(const Status& bound);
// The program of a generation could not be made.
Verdict MakeProgramVerdict(const Status& status, int generation);
// A host's daemon answered Launch with an error of its own.
Verdict MakeLaunchVerdict(const std::string& host, const Status& answer, int generation);

// The user stops the job with SIGINT, SIGTERM or SIGHUP.
Verdict MakeUserStopVerdict(int signal, int generation);

// While ranks run.

// A rank ended badly. `error`, if any, is the first that it reported.
struct FailedRank {
  const std::string& host;
  const v1::RankExited& exit;
  const v1::RankError* error;
  std::optional<std::int64_t> last_step;
};
Verdict MakeRankVerdict(const FailedRank& failed, int generation);
// A host's daemon is gone, and the host is there.
Verdict MakeDaemonLostVerdict(const std::string& host, const std::string& why, int generation);
// Nothing was heard from a host for the time of its lease.
Verdict MakeHostLostVerdict(const std::string& host, const HostChange& change, int generation);
// A host's daemon stopped its ranks because nobody renewed its lease,
Verdict MakeLeaseExpiredVerdict(const std::string& host, int generation);
// because its connections to dsrun had ended,
Verdict MakeDisconnectedVerdict(const std::string& host, int generation);
// or because somebody sent it a signal.
Verdict MakeDaemonSignalledVerdict(const std::string& host, int generation);
// The same as `loss`, which is of a host or its daemon, when dsrun itself did not run for so long
// before it that no host is to blame.
Verdict MakeSuspendedVerdict(const OwnPause& pause, const Verdict& loss);
// Says one thing more to the user.
void AddHint(const std::string& text, Verdict* verdict);
// Says that it was, where that need not be the cause.
void AddSuspension(const OwnPause& pause, Verdict* verdict);
// A rank stands still while others go on.
Verdict MakeStallVerdict(const StalledRank& stalled, int generation);
// A rank has found another one missing that lives: `error` is what it said.
struct AbsentRank {
  int rank = 0;
  std::string host;
  int pid = 0;
  int witness = 0;
  std::string witness_host;
  const v1::RankError& error;
};
Verdict MakeAbsenceVerdict(const AbsentRank& absent, int generation);
// The run directory cannot be written, so that logs would lose lines.
Verdict MakeRunDirectoryVerdict(const Status& written, int generation);

}  // namespace ds::cli
