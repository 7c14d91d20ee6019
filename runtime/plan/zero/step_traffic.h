#pragma once

// StepTraffic: the bytes of a rank's collectives for model state, and of its messages between
// stages, in a step. Counted like comm/traffic.h: full tensors, independent of each rank's share.

#include <cstdint>

namespace ds::zero {

struct StepTraffic {
  std::int64_t all_gather = 0;      // parameters, without full updates (Muon)
  std::int64_t reduce_scatter = 0;  // gradients, without full updates (Muon)
  // Unsharded gradients, and sums between MiCS groups and between stages with tied weights.
  std::int64_t all_reduce = 0;
  std::int64_t all_to_all = 0;      // gradients quantized by ZeRO++
  std::int64_t between_stages = 0;  // without message headers

  void Add(const StepTraffic& other, std::int64_t times = 1) {
    all_gather += times * other.all_gather;
    reduce_scatter += times * other.reduce_scatter;
    all_reduce += times * other.all_reduce;
    all_to_all += times * other.all_to_all;
    between_stages += times * other.between_stages;
  }
  friend bool operator==(const StepTraffic&, const StepTraffic&) = default;
};

}  // namespace ds::zero
