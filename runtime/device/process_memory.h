#pragma once

// ProcessMemory: this process's memory as the kernel sees it. Pages shared with other processes
// count in full in each. Threads: safe from any thread.

#include <cstdint>

#include "runtime/base/status.h"

namespace ds::device {

struct ProcessMemory {
  std::int64_t resident_bytes = 0;
  std::int64_t peak_resident_bytes = 0;  // since exec
  std::int64_t shared_bytes = 0;         // the part of resident_bytes that is shared memory
};

// Reads /proc/self/status (some 20 microseconds).
StatusOr<ProcessMemory> ReadProcessMemory();

}  // namespace ds::device
