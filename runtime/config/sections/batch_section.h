#pragma once

// The three batch sizes of a ds_config and their equation: train = micro * accumulation steps *
// world size. Pure integers. Source: DeepSpeed's batch resolution. Derivations use floor division
// and are checked afterwards.

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/base/status.h"
#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> BatchRules();
// Requires values without errors.
void FillBatch(const Values& values, DsConfig* config);

struct GivenBatchSizes {
  std::optional<std::int64_t> train;
  std::optional<std::int64_t> micro;
  std::optional<std::int64_t> accumulation;
};

// Solves the equation for the sizes that are not given. The error names all three numbers, the
// derived ones, and every one-line fix; or it names the first given size below 1. Requires
// world_size >= 1.
StatusOr<BatchConfig> SolveBatchSizes(const GivenBatchSizes& given, std::int64_t world_size);

// Functions for a change of sizes during training. `world_size` is the number of data-parallel
// ranks. Both require a `batch` that satisfies the equation for it.
//
// Changes the train batch size: the micro-batch stays, the accumulation follows. The error names
// the nearest sizes that are multiples of the micro-batches.
StatusOr<BatchConfig> WithTrainBatchSize(const BatchConfig& batch, std::int64_t train,
                                         std::int64_t world_size);
// Changes the micro-batch size: the accumulation stays, the train batch size follows.
StatusOr<BatchConfig> WithMicroBatchSize(const BatchConfig& batch, std::int64_t micro,
                                         std::int64_t world_size);

}  // namespace ds::config
