#pragma once

// MeasureMemory measures how fast this host's memory is read and written in place. This bounds the
// speed of a host optimizer, which updates state in host memory the same way.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"

namespace ds::offload {

struct MemorySpeed {
  int threads = 1;
  double bytes_per_second = 0.0;  // bytes read plus bytes written (equal amounts)
};

// Returns the best of several passes. Each thread updates its own part of `bytes`, which it has
// touched first. `bytes` must be much larger than the caches. Fails when the memory cannot be
// mapped.
StatusOr<MemorySpeed> MeasureMemory(int threads, std::int64_t bytes);

// Returns 1, 2, 4, ... below the number of cpus this process may run on, and that number.
std::vector<int> ListThreadCounts();

}  // namespace ds::offload
