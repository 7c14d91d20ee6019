#pragma once

// TokenBatches: micro-batches of as many samples as have so many tokens together, and the steps
// that they make (config/dynamic_batching.h). Pure.
//
// Samples are taken in their order, as many in each micro-batch as fit, which is the way of
// DeepSpeed's batch_by_seqlens; samples that do not fit into one alone are in none. A micro-batch
// that cannot have min_batch_size samples ends the list, as does the last sample, which is in none
// either. What does not fill a step is left out.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/dynamic_batching.h"

namespace ds::data {

class TokenBatches {
 public:
  // lengths[i] counts the tokens of sample i; `order` names the samples that are taken, each at
  // most once. A step has so many micro-batches. Refuses samples that do not fill a step.
  static StatusOr<TokenBatches> Create(std::span<const std::int64_t> lengths,
                                       std::span<const std::int64_t> order,
                                       const config::DynamicBatching& batching,
                                       std::int64_t per_step);

  // Counts the micro-batches: a multiple of those of a step.
  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()) - 1; }
  std::int64_t per_step() const { return per_step_; }

  // The samples of a micro-batch, of the place `place` >= 0 of an endless stream of passes.
  std::span<const std::int64_t> At(std::int64_t place) const;

  // Says where a micro-batch stands among the samples of its step.
  struct StepPart {
    std::int64_t first = 0;    // that it begins with
    std::int64_t samples = 0;  // of the step
  };
  StepPart PartAt(std::int64_t place) const;

  struct Coverage {
    std::int64_t samples = 0;           // in micro-batches
    std::int64_t too_long = 0;          // that do not fit into one
    std::int64_t left_over = 0;         // that are in none for the end's sake
    std::int64_t fewest = 0, most = 0;  // of a step
  };
  Coverage coverage() const { return coverage_; }

  // A checksum of which samples are where.
  std::uint32_t fingerprint() const;

 private:
  TokenBatches() = default;
  void TakeAll(std::span<const std::int64_t> lengths, const config::DynamicBatching& batching);
  std::int64_t EndOf(std::int64_t micro_batch) const {
    return ends_[static_cast<std::size_t>(micro_batch)];
  }

  std::int64_t per_step_ = 1;
  std::vector<std::int64_t> samples_;     // one micro-batch behind the other
  std::vector<std::int64_t> ends_ = {0};  // of each in samples_, behind a 0
  Coverage coverage_;
};

}  // namespace ds::data
