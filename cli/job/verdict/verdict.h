#pragma once

// Verdict is the reason for the failure of a job, as shown to the user and stored in verdict.json.

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
  kOutOfMemory,       // ... sent by the kernel's out-of-memory killer
  kSharedMemoryFull,  // ... SIGBUS, while /dev/shm was full
  kException,         // ... after a Python exception that it has reported
  kRankError,         // a rank reported an error before it ended
  kConfig,            // a rank rejected its config, model or data
  kCheckpoint,        // no usable checkpoint
  kPreflight,         // a host rejected the job before any rank started
  kLaunch,            // a rank could not be started
  kHostLost,          // a host does not respond any more
  kDaemonLost,        // the daemon of a host is gone, but the host is up
  kStall,             // a rank is stopped while the others wait for it
  kNetwork,           // ranks cannot reach each other, but dsrun reaches both
  kSuspended,         // dsrun itself was suspended, so that its hosts' leases expired
  kUserStop,          // the user ended the job
  kInternal,          // dsrun could not continue, for example because its disk is full
};

std::string_view CauseName(Cause cause);  // "exit_code", "signal", "out_of_memory", ...

// Evidence from the host of a failed rank; 0 or absent if it could not be read.
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
  int rank = -1;      // the first that failed; -1 = no rank is to blame
  std::string host;   // as spelt in the hostfile; "" = no host is to blame
  int exit_code = 1;  // exit status of dsrun
  int signal = 0;     // that killed the rank, or that the user sent; 0 = none
  int generation = 0;
  std::optional<std::int64_t> step;  // the last reported finished step
  std::string message;               // one sentence
  std::string proof;                 // the facts
  // The rank's traceback; without one JobRecord inserts its last lines.
  std::vector<std::string> last_lines;
  std::string hint;  // the remedy; "" = none
  int pid = 0;       // of the rank; 0 = no rank is to blame
  std::optional<ExitEvidence> evidence;
};

// The outcome of a job or of a generation: success, or a verdict.
using JobOutcome = Outcome<Verdict>;

// Makes the top level of verdict.json; `rank`, `step`, `pid` and `evidence` are null if absent.
nlohmann::ordered_json ToJson(const Verdict& verdict);

}  // namespace ds::cli
