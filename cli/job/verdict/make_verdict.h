#pragma once

// Makes the verdicts: one function, with its text, for each way in which a job can fail.
// FailureJudge chooses between them.
//
// Pure: no I/O, no clock. Thread-safe.

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

// Failures before any rank runs.

// No daemon starts on this machine, or this machine cannot start daemons on other hosts.
Verdict MakeStartVerdict(const Status& started);
// The host cannot be reached over SSH, or no daemon starts there.
Verdict MakeUnreachableVerdict(const FailedHost& failed);
// The host's daemon returned an error to Prepare.
Verdict MakeRefusalVerdict(const std::string& host, const Status& answer);
// The daemon found a problem that would stop the job.
Verdict MakeFindingVerdict(const std::string& host, const v1::Finding& finding);
// Two hosts are one machine. `hostfile` is the file with their names.
Verdict MakeSameMachineVerdict(const std::string& first, const std::string& second,
                               const std::string& hostfile);
// The ranks of a host will use more memory than it has. `advice` names settings that would fit.
struct MemoryShortage {
  int ranks = 0;
  std::int64_t rank_bytes = 0;  // per rank
  std::int64_t needed = 0;      // of all ranks, including shared memory
  std::int64_t available = 0;
  std::string parts;  // of a rank's memory
  std::string nodes;  // NUMA nodes that the ranks are bound to; "" = not bound
};
Verdict MakeMemoryVerdict(const std::string& host, const MemoryShortage& shortage,
                          const std::string& advice);
// The ranks cannot be bound to the cores of the hosts.
Verdict MakeCoresVerdict(const Status& bound);
// The program of a generation could not be determined.
Verdict MakeProgramVerdict(const Status& status, int generation);
// A host's daemon could not start a rank: the answer to Launch, or a later StartFailed.
Verdict MakeLaunchVerdict(const std::string& host, const Status& error, int generation);

// The user stopped the job with SIGINT, SIGTERM or SIGHUP.
Verdict MakeUserStopVerdict(int signal, int generation);

// Failures while ranks run.

// Returns whether a daemon stops ranks with the signal.
bool IsSignalOfStop(int signal);

// A rank failed. `error`, if not null, is the first that it reported.
struct FailedRank {
  const std::string& host;
  const v1::RankExited& exit;
  const v1::RankError* error;
  std::optional<std::int64_t> last_step;
};
Verdict MakeRankVerdict(const FailedRank& failed, int generation);
// A host's daemon is gone, but the host is up.
Verdict MakeDaemonLostVerdict(const std::string& host, const std::string& why, int generation);
// A host was silent for the duration of its lease.
Verdict MakeHostLostVerdict(const std::string& host, const HostChange& change, int generation);
// A host's daemon stopped its ranks because its lease expired,
Verdict MakeLeaseExpiredVerdict(const std::string& host, int generation);
// because its connections to dsrun had ended,
Verdict MakeDisconnectedVerdict(const std::string& host, int generation);
// or because it received a signal.
Verdict MakeDaemonSignalledVerdict(const std::string& host, int generation);
// Replaces `loss`, the loss of a host or its daemon, if a long pause of dsrun itself caused it.
Verdict MakeSuspendedVerdict(const OwnPause& pause, const Verdict& loss);
// Appends a hint for the user.
void AddHint(const std::string& text, Verdict* verdict);
// Mentions a pause that may not be the cause.
void AddSuspension(const OwnPause& pause, Verdict* verdict);
// A rank is stopped while others continue.
Verdict MakeStallVerdict(const StalledRank& stalled, int generation);
// A rank reported a missing rank that is alive; `error` is the report.
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
