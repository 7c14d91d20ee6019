#pragma once

// EstimateMemory computes the memory of a model's states under ZeRO 2 and 3 as DeepSpeed's
// estimators do. Pure.
//
// Source: estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs of
// DeepSpeed 0.19.6 (unchanged in 0.19.8), byte for byte. The estimate covers parameters, gradients
// and optimizer state of 16-bit training with Adam; no activations and no communication buffers.
// CPU bytes are per host and multiplied by 1.5, as in DeepSpeed. For ZeRO-2 with offload the
// reference counts all GPUs of the job instead of the host's; this is kept, as it errs on the safe
// side.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"

namespace ds::config {

struct MemoryQuestion {
  std::int64_t params = 0;
  std::int64_t largest_layer_params = 0;  // the largest count of one module, without its submodules
  std::int64_t num_gpus_per_node = 1;
  std::int64_t num_nodes = 1;
};

struct MemoryRow {
  int stage = 0;
  bool offload_optimizer = false;
  bool offload_param = false;
  bool zero_init = false;  // the model is partitioned while it is built; stage 3 only
  std::int64_t gpu_bytes = 0;
  std::int64_t cpu_bytes = 0;

  friend bool operator==(const MemoryRow&, const MemoryRow&) = default;
};

// Returns two rows of stage 2 and six of stage 3, in the reference's order. An error names the
// number that is below 1, too large, or contradicts another.
StatusOr<std::vector<MemoryRow>> EstimateMemory(const MemoryQuestion& question);

}  // namespace ds::config
