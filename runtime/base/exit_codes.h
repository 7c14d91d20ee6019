#pragma once

// ExitStatus is the only list of what dsrun, dsrund and dsrank end with. A job whose rank failed on
// its own ends with that rank's status, or with ExitStatusOfSignal(n) when signal n killed it; a
// job that the user stopped by signal n ends with ExitStatusOfSignal(n), too.

namespace ds {

enum ExitStatus : int {
  kExitOk = 0,          // every rank succeeded
  kExitFailure = 1,     // anything that has no status of its own
  kExitUsage = 2,       // command line, hostfile, config, model or data cannot be used
  kExitPreflight = 3,   // a host refused the job before any rank started
  kExitHostLost = 4,    // a host or its daemon stopped answering
  kExitStall = 5,       // a rank stands still while the others wait for it
  kExitCheckpoint = 6,  // a checkpoint cannot be written, read or found
};

constexpr int ExitStatusOfSignal(int signal) { return 128 + signal; }

// With --exit_codes distinct a supervisor can tell dsrun's own statuses from a program's: they are
// 240 more, a stop by the user is 247, and a program whose own status is one of these ends with 240
// (verdict.json's proof has it).
inline constexpr int kDistinctBase = 240;
inline constexpr int kDistinctUserStop = 247;

}  // namespace ds
