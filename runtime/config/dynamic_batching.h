#pragma once

// DynamicBatching: batches by tokens instead of samples, and the learning rate that follows
// (DeepSpeed's data_efficiency.data_sampling.dynamic_batching, variable_batch_size_and_lr.py).

#include <cstdint>
#include <optional>
#include <string>

namespace ds::config {

struct DynamicBatching {
  enum class RateScaling { kLinear, kRoot, kNone };
  // In which order samples are taken: as the training has them, shuffled, or ascending by
  // length.
  enum class Picking { kDataloader, kRandom, kLength };

  std::int64_t max_tokens = 1;  // of a micro-batch's samples together, without padding
  std::int64_t min_batch_size = 1;
  std::optional<std::int64_t> max_batch_size = {};
  Picking picking = Picking::kDataloader;
  RateScaling rate_scaling = RateScaling::kLinear;
  // A folder of the data analyzer's files; empty: the samples' own lengths.
  std::string metrics_path = {};
  bool verbose = false;

  friend bool operator==(const DynamicBatching&, const DynamicBatching&) = default;
};

// Finds the factor of the rate of a step with so many samples, where the rate is meant for `base`:
// their ratio (https://arxiv.org/abs/1706.02677), its root (https://arxiv.org/abs/1404.5997), or 1.
double RateFactor(DynamicBatching::RateScaling scaling, std::int64_t base, std::int64_t samples);

}  // namespace ds::config
