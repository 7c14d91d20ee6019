#include "runtime/data/token_batches.h"

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/checkpoint_format/crc32c.h"

namespace ds::data {

StatusOr<TokenBatches> TokenBatches::Create(std::span<const std::int64_t> lengths,
                                            std::span<const std::int64_t> order,
                                            const config::DynamicBatching& batching,
                                            std::int64_t per_step) {
  TokenBatches result;
  result.per_step_ = per_step;
  for (const std::int64_t sample : order) {
    if (lengths[static_cast<std::size_t>(sample)] > batching.max_tokens) {
      ++result.coverage_.too_long;
    } else {
      result.samples_.push_back(sample);
    }
  }
  result.TakeAll(lengths, batching);
  const std::int64_t found = result.size();
  if (found < per_step) {
    return InvalidArgumentError(
        "dynamic_batching: the data has " + std::to_string(found) + " micro-batches of at most " +
        std::to_string(batching.max_tokens) + " tokens, and a step needs train_batch_size " +
        std::to_string(per_step) + " of them (" + std::to_string(result.coverage_.too_long) +
        " samples are longer): lower train_batch_size, or change max_tokens or min_batch_size");
  }
  result.ends_.resize(static_cast<std::size_t>(found - found % per_step) + 1);
  result.coverage_.left_over = std::ssize(result.samples_) - result.ends_.back();
  result.samples_.resize(static_cast<std::size_t>(result.ends_.back()));
  Coverage& coverage = result.coverage_;
  coverage.samples = result.ends_.back();
  coverage.fewest = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t position = 0; position < result.size(); position += per_step) {
    const std::int64_t samples = result.StepRangeAt(position).samples;
    coverage.fewest = std::min(coverage.fewest, samples);
    coverage.most = std::max(coverage.most, samples);
  }
  return result;
}

// Takes samples until the limit. Lengths are not negative, so once a micro-batch exceeds it, more
// samples cannot fit.
void TokenBatches::TakeAll(std::span<const std::int64_t> lengths,
                           const config::DynamicBatching& batching) {
  const std::int64_t usable = std::ssize(samples_) - 1;  // as in DeepSpeed: never the last
  const std::int64_t most = batching.max_batch_size.value_or(usable);
  std::int64_t begin = 0;
  while (begin < usable) {
    std::int64_t end = begin, tokens = 0;
    while (end < usable && end - begin < most) {
      tokens += lengths[static_cast<std::size_t>(samples_[static_cast<std::size_t>(end)])];
      if (tokens > batching.max_tokens) break;
      ++end;
    }
    if (end - begin < batching.min_batch_size) return;
    ends_.push_back(begin = end);
  }
}

std::span<const std::int64_t> TokenBatches::At(std::int64_t position) const {
  const std::int64_t micro_batch = position % size();
  const std::int64_t begin = EndOf(micro_batch), end = EndOf(micro_batch + 1);
  return std::span(samples_).subspan(static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(end - begin));
}

TokenBatches::StepRange TokenBatches::StepRangeAt(std::int64_t position) const {
  const std::int64_t micro_batch = position % size();
  const std::int64_t first = micro_batch - micro_batch % per_step_;
  return {.first = EndOf(micro_batch) - EndOf(first),
          .samples = EndOf(first + per_step_) - EndOf(first)};
}

std::uint32_t TokenBatches::fingerprint() const {
  const std::uint32_t crc = checkpoint::ExtendCrc32c(0, std::as_bytes(std::span(samples_)));
  return checkpoint::ExtendCrc32c(crc, std::as_bytes(std::span(ends_)));
}

}  // namespace ds::data
