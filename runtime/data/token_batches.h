#pragma once

// TokenBatches: micro-batches limited by their total number of tokens, and steps of micro-batches
// (config/dynamic_batching.h). Pure.
//
// Samples are taken in order, as many per micro-batch as fit, as in DeepSpeed's batch_by_seqlens.
// Samples that are too long for a micro-batch are skipped. The list ends at a micro-batch that
// cannot have min_batch_size samples, or before the last sample, which is never used. Micro-batches
// that do not fill a step are dropped.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/dynamic_batching.h"

namespace ds::data {

class TokenBatches {
 public:
  // lengths[i] is the number of tokens of sample i. `order` lists the samples to use, each at most
  // once. A step has `per_step` micro-batches. Returns an error if the samples do not fill a step.
  static StatusOr<TokenBatches> Create(std::span<const std::int64_t> lengths,
                                       std::span<const std::int64_t> order,
                                       const config::DynamicBatching& batching,
                                       std::int64_t per_step);

  // Returns the number of micro-batches, a multiple of per_step().
  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()) - 1; }
  std::int64_t per_step() const { return per_step_; }

  // Returns the samples of the micro-batch at position `position` >= 0 of an endless stream of
  // passes.
  std::span<const std::int64_t> At(std::int64_t position) const;

  // StepRange: the position of a micro-batch among the samples of its step.
  struct StepRange {
    std::int64_t first = 0;    // index of its first sample in the step
    std::int64_t samples = 0;  // number of samples of the step
  };
  StepRange StepRangeAt(std::int64_t position) const;

  struct Coverage {
    std::int64_t samples = 0;           // in micro-batches
    std::int64_t too_long = 0;          // too long for a micro-batch
    std::int64_t left_over = 0;         // dropped at the end
    std::int64_t fewest = 0, most = 0;  // per step
  };
  Coverage coverage() const { return coverage_; }

  // Returns a checksum of the samples and their positions.
  std::uint32_t fingerprint() const;

 private:
  TokenBatches() = default;
  void TakeAll(std::span<const std::int64_t> lengths, const config::DynamicBatching& batching);
  std::int64_t EndOf(std::int64_t micro_batch) const {
    return ends_[static_cast<std::size_t>(micro_batch)];
  }

  std::int64_t per_step_ = 1;
  std::vector<std::int64_t> samples_;     // micro-batch by micro-batch
  std::vector<std::int64_t> ends_ = {0};  // end of each micro-batch in samples_, preceded by 0
  Coverage coverage_;
};

}  // namespace ds::data
