#pragma once

// Verdict: why a job ended other than well, as the user reads it and as verdict.json holds it.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace ds::cli {

enum class Cause {
  kExitCode,          // a rank ended with a status other than 0
  kSignal,            // a rank was killed by a signal
  kOutOfMemory,       // ... which the kernel's out-of-memory killer sent
  kSharedMemoryFull,  // ... SIGBUS, while /dev/shm was full
  kException,         // ... after a Python exception that it has told of
  kRankError,         // a rank said what went wrong before it ended
  kConfig,            // a rank refused its config, model or data
  kCheckpoint,        // no usable checkpoint
  kPreflight,         // a host refused the job before any rank started
  kLaunch,            // a rank could not be started
  kHostLost,          // nothing is heard from a host any more
  kDaemonLost,        // the daemon of a host is gone, the host is there
  kStall,             // a rank stands still while the others wait for it
  kNetwork,           // ranks do not reach each other, and dsrun reaches both
  kSuspended,         // dsrun itself was, so that its hosts' leases ran out
  kUserStop,          // the user ended the job
  kInternal,          // dsrun could not go on: its own disk, for example
};

std::string_view CauseName(Cause cause);  // "exit_code", "signal", "out_of_memory", ...

// Findings of the host of a failed rank; 0 and none where it could not be read.
struct ExitEvidence {
  std::uint64_t max_rss_bytes = 0;
  std::uint64_t host_memory_bytes = 0;
  std::uint64_t oom_kills = 0;                       // counted by the ranks' memory group
  std::uint64_t memory_limit_bytes = 0;              // of that group; 0 = unlimited
  std::uint64_t memory_peak_bytes = 0;               // of that group
  std::string kernel_log;                            // its line about this very process
  std::optional<std::uint64_t> shared_memory_bytes;  // /dev/shm, after SIGBUS
  std::optional<std::uint64_t> shared_memory_free_bytes;
};

struct Verdict {
  Cause cause = Cause::kExitCode;
  int rank = -1;      // the first that failed; -1 when no rank is to blame
  std::string host;   // as spelt in the hostfile; "" when no host is to blame
  int exit_code = 1;  // what dsrun ends with
  int signal = 0;     // that killed the rank, or that the user sent; 0 = none
  int generation = 0;
  std::optional<std::int64_t> step;  // the last finished one that was reported
  std::string message;               // one sentence
  std::string proof;                 // the facts behind it
  // The rank's traceback; where it left none JobRecord puts its last lines here.
  std::vector<std::string> last_lines;
  std::string hint;  // what to do; "" when there is nothing to say
  int pid = 0;       // of the rank; 0 when no rank is to blame
  std::optional<ExitEvidence> evidence;
};

// The end of a job, or of a generation of it: a good one, or as the verdict says.
using JobOutcome = Outcome<Verdict>;

// The top level of verdict.json; `rank`, `step`, `pid` and `evidence` are null when there is none.
nlohmann::ordered_json ToJson(const Verdict& verdict);

}  // namespace ds::cli
