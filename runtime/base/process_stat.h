#pragma once

// ReadProcessStat reads /proc/PID/stat of a process, as described in proc(5).

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ds {

struct ProcessStat {
  std::string name;  // of its main thread (PR_SET_NAME), at most 15 bytes of any kind
  char state = 0;    // 'R', 'S', 'T' (a signal has stopped it), 't' (a debugger), 'Z', ...
  pid_t parent = 0;
  std::uint64_t processor_ticks = 0;  // used by all its threads
  // Start time in clock ticks since the boot. Distinguishes processes that reused a pid.
  std::uint64_t start = 0;
};

// Returns nullopt when the process does not exist or /proc cannot be read.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

// Returns true when a signal (SIGSTOP, Ctrl-Z) has stopped the process; false when its state cannot
// be read.
bool IsStopped(pid_t pid);

}  // namespace ds
