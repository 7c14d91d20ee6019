#pragma once

// ZenFlowConfig: zero_optimization.zenflow. A matrix's important columns are updated in every step,
// the others by the mean gradient of several (plan/zero/zenflow_schedule.h).

#include <cstdint>
#include <optional>

namespace ds::config {

struct ZenFlowConfig {
  double topk_ratio = 0.1;                      // of a matrix's columns
  std::int64_t select_interval = 0;             // steps, or epochs; 0: they are chosen once
  bool counts_epochs = false;                   // select_interval does
  std::optional<std::int64_t> steps_per_epoch;  // absent: whoever knows the data says it
  std::optional<std::int64_t> update_interval;  // absent: as the sums of gradients say
  double auto_ratio = 0.99;                     // of the matrices
  std::int64_t full_warm_up_rounds = 0;         // first steps, which update everything
  bool overlap_step = false;
  // The update beside leaves this share of a rank's cores to the model; absent: both use all.
  std::optional<double> compute_cores = {};
  bool offload = false;  // of the important columns' moments, too
};

}  // namespace ds::config
