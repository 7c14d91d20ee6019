#include "runtime/data/curriculum_order.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "runtime/base/split_mix.h"
#include "runtime/checkpoint_format/crc32c.h"

namespace ds::data {

StatusOr<CurriculumOrder> CurriculumOrder::Create(std::span<const std::int64_t> first_steps,
                                                  std::int64_t samples_per_step,
                                                  const Sampler::Options& order) {
  // A step after the last countable position never begins.
  const std::int64_t last_step = std::numeric_limits<std::int64_t>::max() / samples_per_step;
  std::vector<std::pair<std::int64_t, std::int64_t>> entries;  // step, sample
  for (std::size_t i = 0; i < first_steps.size(); ++i) {
    if (first_steps[i] > last_step) continue;
    entries.emplace_back(first_steps[i], static_cast<std::int64_t>(i));
  }
  std::sort(entries.begin(), entries.end());
  if (entries.empty() || entries.front().first > 1) {
    return InvalidArgumentError("no sample is easy enough for the first step");
  }
  CurriculumOrder result;
  result.samples_per_step_ = samples_per_step;
  for (const auto& [step, sample] : entries) result.samples_.push_back(sample);
  for (std::size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
    const std::int64_t step = entries[begin].first;
    while (end < entries.size() && entries[end].first == step) ++end;
    result.AddCluster((step - 1) * samples_per_step, begin, end, order);
  }
  result.fingerprint_ =
      checkpoint::ExtendCrc32c(result.fingerprint_, std::as_bytes(std::span(result.samples_)));
  return result;
}

void CurriculumOrder::AddCluster(std::int64_t first_position, std::size_t first, std::size_t end,
                                 Sampler::Options order) {
  order.seed = SplitMix(order.seed + clusters_.size());
  const std::array<double, 2> sizes = {static_cast<double>(first),
                                       static_cast<double>(end - first)};
  clusters_.push_back({.first_position = first_position,
                       .first = first,
                       .order = Sampler(static_cast<std::int64_t>(end - first), order),
                       .shares = Blend(std::span(sizes).subspan(first == 0 ? 1 : 0))});
  const std::array<std::int64_t, 2> mark = {first_position, static_cast<std::int64_t>(end)};
  fingerprint_ = checkpoint::ExtendCrc32c(fingerprint_, std::as_bytes(std::span(mark)));
}

CurriculumOrder::Growth CurriculumOrder::growth() const {
  return {.first = clusters_.front().order.samples(),
          .last = std::ssize(samples_),
          .last_step = clusters_.back().first_position / samples_per_step_ + 1};
}

std::int64_t CurriculumOrder::At(std::int64_t position) {
  const auto later = std::upper_bound(
      clusters_.begin(), clusters_.end(), position,
      [](std::int64_t at, const Cluster& each) { return at < each.first_position; });
  auto cluster = std::prev(later);
  while (cluster != clusters_.begin()) {
    const Blend::SourceSample at = cluster->shares.At(position - cluster->first_position);
    position = at.index;
    if (at.source == 1) break;
    position += cluster->first_position;
    --cluster;
  }
  return samples_[cluster->first + static_cast<std::size_t>(cluster->order.At(position))];
}

}  // namespace ds::data
