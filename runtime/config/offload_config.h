#pragma once

// Settings of model-state offload and of its file transfers; members of DsConfig.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/zenflow.h"

namespace ds::config {

enum class OffloadDevice { kNone, kCpu, kNvme };

struct OffloadParamConfig {
  OffloadDevice device = OffloadDevice::kNone;
  std::vector<std::string> nvme_path;  // folders; at least one for kNvme
  // Elements.
  std::int64_t buffer_count = 5;
  std::int64_t buffer_size = 100'000'000;
  std::int64_t max_in_cpu = 1'000'000'000;
};

struct OffloadOptimizerConfig {
  OffloadDevice device = OffloadDevice::kNone;
  std::vector<std::string> nvme_path;
  std::int64_t buffer_count = 4;
  bool pipeline_read = false;
  bool pipeline_write = false;
  double ratio = 1.0;          // at least this fraction of the state is offloaded
  bool super_offload = false;  // updates blocks in the backward pass
  // Fraction of a rank's cores reserved for these updates. Absent: none is reserved, and the rank's
  // own thread updates between blocks.
  std::optional<double> update_cores = {};
};

// Transfers to and from files.
struct AioConfig {
  std::int64_t block_size = 1 << 20;  // bytes
  int queue_depth = 8;
  int intra_op_parallelism = 1;
  bool single_submit = false;
  bool overlap_events = true;
};

}  // namespace ds::config
