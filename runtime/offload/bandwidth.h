#pragma once

// Measurements of this host's bandwidth: of its memory, and of the drives of a tier.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/offload/file_tier.h"

namespace ds::offload {

struct TierSpeed {
  IoOptions io;
  double write_bytes_per_second = 0.0;
  double read_bytes_per_second = 0.0;

  // Returns the combined speed, because offload reads about as much as it writes.
  double both() const { return 2.0 / (1.0 / write_bytes_per_second + 1.0 / read_bytes_per_second); }
};

// Measures the write and read speed of a tier in offload's access pattern: sequential transfers of
// several blocks, two at a time, bypassing the page cache. Writes `bytes` twice and reads them
// once; the speeds are of the read and of the second write, which allocates no more disk space. The
// folders in the options need free space for `bytes`.
StatusOr<TierSpeed> MeasureTier(const TierOptions& options, std::int64_t bytes);

// Returns the settings that `dsrun bench io --sweep` tries: the grid of DeepSpeed's ds_nvme_tune
// without the settings that never came out best.
std::vector<IoOptions> ListIoSettings();

// Returns the setting with the highest combined speed. Requires at least one.
const TierSpeed& ChooseFastest(std::span<const TierSpeed> speeds);

struct MemorySpeed {
  int threads = 1;
  double bytes_per_second = 0.0;  // bytes read plus bytes written (equal amounts)
};

// Measures how fast this host's memory is read and written in place. This bounds the speed of a
// host optimizer, which updates state in host memory the same way. Returns the best of several
// passes. Each thread updates its own part of `bytes`, which it has touched first. `bytes` must be
// much larger than the caches. Fails when the memory cannot be mapped.
StatusOr<MemorySpeed> MeasureMemory(int threads, std::int64_t bytes);

// Returns 1, 2, 4, ... below the number of cpus this process may run on, and that number.
std::vector<int> ListThreadCounts();

}  // namespace ds::offload
