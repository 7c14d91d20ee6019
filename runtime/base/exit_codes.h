#pragma once

// ExitStatus lists the exit statuses of dsrun, dsrund and dsrank; no other list exists. A job in
// which a rank fails on its own exits with that rank's status, or with ExitStatusOfSignal(n) when
// signal n killed the rank. A job that the user stops with signal n exits with
// ExitStatusOfSignal(n), too.

namespace ds {

enum ExitStatus : int {
  kExitOk = 0,          // every rank succeeded
  kExitFailure = 1,     // any failure without a status of its own
  kExitUsage = 2,       // command line, hostfile, config, model or data cannot be used
  kExitPreflight = 3,   // a host refused the job before any rank started
  kExitHostLost = 4,    // a host or its daemon stopped answering
  kExitStall = 5,       // a rank makes no progress while the others wait for it
  kExitCheckpoint = 6,  // a checkpoint cannot be written, read or found
};

constexpr int ExitStatusOfSignal(int signal) { return 128 + signal; }

// Statuses under `--exit_codes distinct`, which let a supervisor tell dsrun's own statuses from a
// program's. dsrun's own statuses are 240 higher, and a stop by the user is 247. A program whose
// own status falls in this range ends with 240; verdict.json's `proof` holds the original.
inline constexpr int kDistinctBase = 240;
inline constexpr int kDistinctUserStop = 247;

}  // namespace ds
