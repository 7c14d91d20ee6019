#pragma once

// Elasticity finds one train batch size that suits as many numbers of GPUs as possible, so that a
// job keeps its batch when it restarts on another number. Pure integers.
//
// Source: DeepSpeed 0.19.6, deepspeed/elasticity (removed upstream in 0.19.8). Results are equal
// (goldens) except where DeepSpeed returns an impossible answer or crashes:
// - No valid number of GPUs and 0 samples are errors.
// - A micro-batch that does not fit is skipped.
// - `max_gpus` below a node is an error (in DeepSpeed: no limit), as are GPUs that are no multiple
//   of `model_parallel_size` (in DeepSpeed: rounded) and `true` in a list (in DeepSpeed: 1).
// - In version 0.2 GPUs are counted per job and the micro-batch is per data-parallel rank
//   (DeepSpeed mixes these up).
//
// Units: batch sizes are samples. GPUs are ranks of the job; with model parallelism the counts in
// `valid_gpus` are data-parallel ranks, GPUs / model_parallel_size.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/keys/key.h"

namespace ds::config {

struct ElasticityConfig {
  enum class Version { k01, k02 };  // 0.1 counts in GPUs, 0.2 in whole nodes

  std::int64_t max_train_batch_size = 2000;
  std::vector<std::int64_t> micro_batch_sizes = {2, 4, 6};
  std::int64_t min_gpus = 1;
  std::int64_t max_gpus = 10000;
  bool prefer_larger_batch = true;  // breaks ties between batches that suit equally many GPU counts
  std::int64_t num_gpus_per_node = 1;
  std::int64_t model_parallel_size = 1;
  Version version = Version::k02;
};

struct ElasticBatch {
  std::int64_t final_batch_size = 0;
  std::vector<std::int64_t> valid_gpus;          // ascending, never empty
  std::optional<std::int64_t> micro_batch_size;  // absent when the number of GPUs is not given
};

// One check of a config, with the key that its error names. Checks run in the order of this list.
struct ElasticityCheck {
  Key key;
  Status (*check)(const ElasticityConfig& config);
};
std::span<const ElasticityCheck> ElasticityChecks();

// Finds the batch size. `num_gpus` is the number of GPUs of the job, if known; version 0.2 requires
// it. The error comes from the first failed check, or explains why no batch exists at all or for
// this number of GPUs.
StatusOr<ElasticBatch> SolveElasticity(const ElasticityConfig& config,
                                       std::optional<std::int64_t> num_gpus);

}  // namespace ds::config
