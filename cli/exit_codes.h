#pragma once

// The exit status of dsrun: the only list of it. A job whose rank failed on its own ends with that
// rank's own status, or ExitStatusOfSignal(n) when signal n killed it.

namespace ds::cli {

enum ExitStatus : int {
  kExitOk = 0,             // every rank succeeded
  kExitInternal = 1,       // dsrun itself could not go on (its own disk, its own daemon)
  kExitUsage = 2,          // command line, hostfile, config, model or data; nothing was started
  kExitPreflight = 3,      // a host refused the job before any rank started
  kExitHostLost = 4,       // a host or its daemon stopped answering
  kExitStall = 5,          // ranks made no progress
  kExitCheckpoint = 6,     // the checkpoint named or needed is not usable
  kExitInterrupted = 130,  // stopped by the user: SIGINT
  kExitTerminated = 143,   // stopped by the user: SIGTERM
};

constexpr int ExitStatusOfSignal(int signal) { return 128 + signal; }

}  // namespace ds::cli
