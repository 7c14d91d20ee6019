#pragma once

// DynamicBatching forms batches by tokens instead of samples, and scales the learning rate with the
// batch (DeepSpeed's data_efficiency.data_sampling.dynamic_batching,
// variable_batch_size_and_lr.py).

#include <cstdint>
#include <optional>
#include <string>

namespace ds::config {

struct DynamicBatching {
  enum class RateScaling { kLinear, kRoot, kNone };
  // The order in which samples are taken: the training order, shuffled, or ascending by length.
  enum class Picking { kDataloader, kRandom, kLength };

  std::int64_t max_tokens = 1;  // total over the samples of a micro-batch, without padding
  std::int64_t min_batch_size = 1;
  std::optional<std::int64_t> max_batch_size = {};
  Picking picking = Picking::kDataloader;
  RateScaling rate_scaling = RateScaling::kLinear;
  // Folder with files of the data analyzer; empty: the samples' own lengths.
  std::string metrics_path = {};
  bool verbose = false;

  friend bool operator==(const DynamicBatching&, const DynamicBatching&) = default;
};

// Returns the factor of the learning rate for a step with `samples` samples, where the rate is
// meant for `base` samples: their ratio (https://arxiv.org/abs/1706.02677), its square root
// (https://arxiv.org/abs/1404.5997), or 1.
double RateFactor(DynamicBatching::RateScaling scaling, std::int64_t base, std::int64_t samples);

}  // namespace ds::config
