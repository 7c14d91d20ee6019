#pragma once

// MeasureMemory: how fast this host's memory is read and written in place, as a host's optimizer
// does it: a bound for how fast it can update what it keeps there.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"

namespace ds::offload {

struct MemorySpeed {
  int threads = 1;
  double bytes_per_second = 0.0;  // read, and as many written, together
};

// Each thread goes over its own part of `bytes`, which it has touched first; the best of several
// passes. Requires much more bytes than caches have. Fails where there is no such memory.
StatusOr<MemorySpeed> MeasureMemory(int threads, std::int64_t bytes);

// 1, 2, 4, ... up to what this process may run on, and that.
std::vector<int> ListThreadCounts();

}  // namespace ds::offload
