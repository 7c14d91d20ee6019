#pragma once

// Elasticity: one train batch size that suits as many numbers of GPUs as possible, so that a job
// keeps its batch when it is restarted on another number. Pure integers.
//
// Source: DeepSpeed 0.19.6, deepspeed/elasticity (removed upstream in 0.19.8), and equal to it
// (goldens) except where it returns an impossible answer or crashes. No valid number of GPUs and 0
// samples are errors here; a micro-batch that does not fit is passed over; `max_gpus` below a node
// is an error (there no limit), as are GPUs that are no multiple of `model_parallel_size` (there
// rounded) and `true` in a list (there 1). In version 0.2 the GPUs are those of the job and the
// micro-batch is per data-parallel rank (there mixed up).
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
  bool prefer_larger_batch = true;  // of batches that suit equally many GPU counts
  std::int64_t num_gpus_per_node = 1;
  std::int64_t model_parallel_size = 1;
  Version version = Version::k02;
};

struct ElasticBatch {
  std::int64_t final_batch_size = 0;
  std::vector<std::int64_t> valid_gpus;          // ascending, never empty
  std::optional<std::int64_t> micro_batch_size;  // absent when no number of GPUs is given
};

// Checks what a config may get wrong, each with the key to blame, in the order in which it is
// checked.
struct ElasticityCheck {
  Key key;
  Status (*check)(const ElasticityConfig& config);
};
std::span<const ElasticityCheck> ElasticityChecks();

// `num_gpus` is the number of GPUs of the job, if it is known; version 0.2 needs it. The error is
// the first failed check, or says why no batch, or none for this number of GPUs, exists.
StatusOr<ElasticBatch> SolveElasticity(const ElasticityConfig& config,
                                       std::optional<std::int64_t> num_gpus);

}  // namespace ds::config
