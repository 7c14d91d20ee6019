#include "runtime/plan/zero/flat_layout.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace ds::zero {
namespace {

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<std::int64_t>& numels, int shard_ranks,
                       const std::vector<int>& starts, std::int64_t multiple) {
  DS_CHECK(shard_ranks >= 1);
  const std::int64_t alignment = std::max(kAlignment, multiple);
  const std::int64_t shard_multiple = std::max(kShardMultiple, multiple);
  std::int64_t end = 0;
  const auto advance_to = [&](std::int64_t position) {
    if (position > end) gaps_.push_back({end, position - end});
    end = position;
  };
  for (const std::int64_t numel : numels) {
    const bool starts_range = std::binary_search(starts.begin(), starts.end(), size());
    advance_to(RoundUp(end, starts_range ? shard_multiple : alignment));
    parameters_.push_back({end, numel});
    end += numel;
  }
  padded_numel_ = RoundUp(end, shard_multiple * shard_ranks);
  shard_numel_ = padded_numel_ / shard_ranks;
  advance_to(padded_numel_);
}

FlatRange FlatLayout::shard_of(const FlatRange& range, int rank) const {
  const FlatRange own = shard(rank);
  const std::int64_t start = std::max(own.start, range.start);
  const std::int64_t end = std::min(own.end(), range.end());
  return start < end ? FlatRange{start, end - start} : FlatRange{own.start, 0};
}

std::vector<Piece> FlatLayout::FindPieces(const FlatRange& range) const {
  std::vector<Piece> pieces;
  for (int i = 0; i < size(); ++i) {
    const std::int64_t start = std::max(parameter(i).start, range.start);
    const std::int64_t end = std::min(parameter(i).end(), range.end());
    if (start >= end) continue;
    pieces.push_back({.parameter = i,
                      .parameter_start = start - parameter(i).start,
                      .range_start = start - range.start,
                      .count = end - start});
  }
  return pieces;
}

}  // namespace ds::zero
