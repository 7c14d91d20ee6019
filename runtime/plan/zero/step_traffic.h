#pragma once

// StepTraffic: what calls for model state, and messages between stages, are about in a step of a
// rank: bytes as comm/traffic.h counts them, whole tensors whatever each rank has of them.

#include <cstdint>

namespace ds::zero {

struct StepTraffic {
  std::int64_t all_gather = 0;      // parameters, but for whole updates (Muon)
  std::int64_t reduce_scatter = 0;  // gradients, likewise
  // Those that no rank has a part of, and between groups of MiCS and stages with tied weights.
  std::int64_t all_reduce = 0;
  std::int64_t all_to_all = 0;      // those that ZeRO++ rounds
  std::int64_t between_stages = 0;  // without the headers of messages

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
