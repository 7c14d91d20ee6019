#pragma once

// ZenFlowConfig holds zero_optimization.zenflow. ZenFlow updates the important columns of a matrix
// in every step, and the others by the mean gradient of several steps
// (plan/zero/zenflow_schedule.h).

#include <cstdint>
#include <optional>

namespace ds::config {

struct ZenFlowConfig {
  double topk_ratio = 0.1;                      // fraction of a matrix's columns
  std::int64_t select_interval = 0;             // steps, or epochs; 0: columns are selected once
  bool counts_epochs = false;                   // select_interval counts epochs
  std::optional<std::int64_t> steps_per_epoch;  // absent: derived from the training data
  std::optional<std::int64_t> update_interval;  // absent: adaptive (ZenFlowBalance)
  double auto_ratio = 0.99;                     // fraction of matrices that must be due
  std::int64_t full_warm_up_rounds = 0;         // initial steps that update everything
  bool overlap_step = false;
  // Fraction of a rank's cores that the overlapped update leaves to the model. Absent: both use all
  // cores.
  std::optional<double> compute_cores = {};
  bool offload = false;  // offloads the moments of the important columns, too
};

}  // namespace ds::config
