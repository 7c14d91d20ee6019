#pragma once

// MeasureTier: how fast files of a tier are written and read, as offload does it: sequentially, in
// transfers of several blocks, two at a time, past the page cache.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/offload/file_tier.h"

namespace ds::offload {

struct TierSpeed {
  IoOptions io;
  double write_bytes_per_second = 0.0;
  double read_bytes_per_second = 0.0;

  // Offload reads about as much as it writes.
  double both() const { return 2.0 / (1.0 / write_bytes_per_second + 1.0 / read_bytes_per_second); }
};

// Writes `bytes` twice and reads them once; what is measured is the second write, which no longer
// makes room on the disk, and the read. Requires room for them in the options' folders.
StatusOr<TierSpeed> MeasureTier(const TierOptions& options, std::int64_t bytes);

// The settings that `dsrun bench io --sweep` tries: what DeepSpeed's ds_nvme_tune does, less those
// that nobody has found to be best.
std::vector<IoOptions> ListIoSettings();

// The one that reads and writes fastest together. Requires at least one.
const TierSpeed& ChooseFastest(std::span<const TierSpeed> speeds);

}  // namespace ds::offload
