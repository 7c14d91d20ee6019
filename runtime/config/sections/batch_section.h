#pragma once

// The three batch sizes of a ds_config, and the equation that they hold: train = micro *
// accumulation steps * world size. Pure integers. Source: DeepSpeed's batch resolution; the
// derivations use floor division and are then checked.

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

// Solves for what is not given. The error names all three numbers, which of them were derived, and
// every one-line fix; or the first given size below 1. Requires world_size >= 1.
StatusOr<BatchConfig> SolveBatchSizes(const GivenBatchSizes& given, std::int64_t world_size);

// The sizes after a change while training, where `world_size` is the number of data-parallel ranks.
// Both require a `batch` that holds the equation for it.
//
// Another train batch size: the micro-batch stays, the accumulation follows. The error names the
// nearest sizes that the micro-batches divide.
StatusOr<BatchConfig> WithTrainBatchSize(const BatchConfig& batch, std::int64_t train,
                                         std::int64_t world_size);
// Another micro-batch size: the accumulation stays, the train batch size follows.
StatusOr<BatchConfig> WithMicroBatchSize(const BatchConfig& batch, std::int64_t micro,
                                         std::int64_t world_size);

}  // namespace ds::config
