#pragma once

// The batch-size equation: train = micro * accumulation steps * world size. Pure integers.
// Source: DeepSpeed's batch resolution; the derivations use floor division and are then checked.

#include <cstdint>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

struct GivenBatchSizes {
  std::optional<std::int64_t> train;
  std::optional<std::int64_t> micro;
  std::optional<std::int64_t> accumulation;
};

// Solves for what is not given. The error names all three numbers, which of them were derived, and
// every one-line fix. Requires world_size >= 1 and given sizes >= 1.
StatusOr<BatchConfig> SolveBatchSizes(const GivenBatchSizes& given, std::int64_t world_size);

}  // namespace ds::config
