#pragma once

// MeasureTier measures the write and read speed of a tier in offload's access pattern: sequential
// transfers of several blocks, two at a time, bypassing the page cache.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/offload/file_tier.h"

namespace ds::offload {

struct TierSpeed {
  IoOptions io;
  double write_bytes_per_second = 0.0;
  double read_bytes_per_second = 0.0;

  // Returns the combined speed, because offload reads about as much as it writes.
  double both() const { return 2.0 / (1.0 / write_bytes_per_second + 1.0 / read_bytes_per_second); }
};

// Writes `bytes` twice and reads them once. Measures the read and the second write, which allocates
// no more disk space. The folders in the options need free space for `bytes`.
StatusOr<TierSpeed> MeasureTier(const TierOptions& options, std::int64_t bytes);

// Returns the settings that `dsrun bench io --sweep` tries: the grid of DeepSpeed's ds_nvme_tune
// without the settings that never came out best.
std::vector<IoOptions> ListIoSettings();

// Returns the setting with the highest combined speed. Requires at least one.
const TierSpeed& ChooseFastest(std::span<const TierSpeed> speeds);

}  // namespace ds::offload
