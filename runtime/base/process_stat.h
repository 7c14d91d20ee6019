#pragma once

// ReadProcessStat: what /proc/PID/stat says of a process, as proc(5) describes it.

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace ds {

struct ProcessStat {
  char state = 0;  // 'R', 'S', 'T' (a signal has stopped it), 't' (a debugger), 'Z', ...
  pid_t parent = 0;
  std::uint64_t processor_ticks = 0;  // that all its threads have used
  std::uint64_t start = 0;  // in clock ticks since the boot: tells a pid's processes apart
};

// Nothing where there is no such process, or /proc does not say.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

// Tells whether a signal (SIGSTOP, Ctrl-Z) has stopped it; false where that cannot be read.
bool IsStopped(pid_t pid);

}  // namespace ds
