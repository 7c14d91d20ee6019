#pragma once

// EstimateMemory: the needs of a model's states under ZeRO 2 and 3 by DeepSpeed's estimators. Pure.
//
// Source: estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs of
// DeepSpeed 0.19.6 (the same in 0.19.8), byte for byte: 16-bit training with Adam, parameters,
// gradients and optimizer state; no activations, no buffers of communication. CPU bytes are per
// host and times 1.5, as there. The reference counts all GPUs of the job, not only the host's,
// where ZeRO-2 offloads; that is kept, it errs on the safe side.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"

namespace ds::config {

struct MemoryQuestion {
  std::int64_t params = 0;
  std::int64_t largest_layer_params = 0;  // of one module, without those inside it
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

// Two rows of stage 2, six of stage 3, in the reference's order. An error names the number that
// is below 1, too large, or contradicts another.
StatusOr<std::vector<MemoryRow>> EstimateMemory(const MemoryQuestion& question);

}  // namespace ds::config
