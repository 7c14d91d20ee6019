#include "runtime/zero/plan/bucket_bytes.h"

#include <algorithm>
#include <numeric>

#include "runtime/config/muon_memory.h"
#include "runtime/zero/plan/flat_layout.h"
#include "runtime/zero/plan/quantized_bytes.h"

namespace ds::zero {
namespace {

using config::Width;

constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));

FlatLayout MakeLayout(const BucketShape& shape, const StepMemoryInput& input) {
  std::vector<int> starts;
  for (const RangeShape& range : shape.ranges) starts.push_back(range.first);
  return FlatLayout(shape.numels, input.shard_ranks, starts,
                    shape.rounded ? kQuantizationBlock : 1);
}

// In the layout, with what of the bucket is trained so.
struct PlacedRange {
  FlatRange range;
  RangeShape shape;
};

std::vector<PlacedRange> PlaceRanges(const BucketShape& shape, const FlatLayout& layout) {
  if (shape.ranges.empty()) return {{layout.whole(), {}}};
  std::vector<PlacedRange> placed;
  std::int64_t end = layout.padded_numel();
  for (auto range = shape.ranges.rbegin(); range != shape.ranges.rend(); ++range) {
    const std::int64_t start = layout.parameter(range->first).start;
    placed.push_back({{start, end - start}, *range});
    end = start;
  }
  std::reverse(placed.begin(), placed.end());
  return placed;
}

// What one rank keeps for the ranges, value by value.
std::vector<std::int64_t> ListStates(const std::vector<PlacedRange>& ranges,
                                     const FlatLayout& layout, const StepMemoryInput& input,
                                     int rank) {
  std::vector<std::int64_t> states;
  for (const PlacedRange& placed : ranges) {
    const std::int64_t own =
        input.sharding.optimizer ? layout.shard_of(placed.range, rank).count : placed.range.count;
    const int count = input.optimizer_states - (placed.shape.muon ? 1 : 0);
    states.insert(states.end(), static_cast<std::size_t>(count), own * Width(input.types.state));
  }
  return states;
}

// Lists those of the rank that has the most: where ranges keep unlike much, the first or the last
// one.
std::vector<std::int64_t> ListMostStates(const std::vector<PlacedRange>& ranges,
                                         const FlatLayout& layout, const StepMemoryInput& input) {
  const auto sum = [](const std::vector<std::int64_t>& states) {
    return std::accumulate(states.begin(), states.end(), std::int64_t{0});
  };
  std::vector<std::int64_t> first = ListStates(ranges, layout, input, 0);
  std::vector<std::int64_t> last = ListStates(ranges, layout, input, input.shard_ranks - 1);
  return sum(first) >= sum(last) ? first : last;
}

std::int64_t CountUpdateBuffers(const std::vector<PlacedRange>& ranges, const FlatLayout& layout,
                                const StepMemoryInput& input) {
  std::int64_t most = 0;
  for (const auto& [range, shape] : ranges) {
    if (!shape.muon) continue;
    const bool sharded = input.sharding.optimizer;
    const std::int64_t elements =
        config::CountMuonElements({.views = sharded ? layout.shard_of(range, 0).count : range.count,
                                   .shard = layout.shard_numel(),
                                   .whole = layout.padded_numel(),
                                   .sharded = sharded,
                                   .iteration = shape.iteration});
    most = std::max(most, elements * kFloatBytes);
  }
  return most;
}

// FlatParameters::BringInParts has these.
std::int64_t CountPublishBuffers(const FlatLayout& layout, const StepMemoryInput& input) {
  const bool publishes = input.sharding.optimizer && !input.sharding.parameters;
  const std::int64_t elements = input.publish_elements.value_or(layout.padded_numel());
  if (!publishes || elements >= layout.padded_numel()) return 0;
  const std::int64_t of_shard = std::max(elements / input.shard_ranks, FlatLayout::kShardMultiple);
  return input.shard_ranks * of_shard * Width(input.types.parameter);
}

// As QuantizedReduction has them, which quantises a value once on each level.
void CountRoundedReduction(const FlatLayout& layout, const StepMemoryInput& input,
                           BucketBytes* sizes) {
  const std::int64_t count = layout.shard_numel(), ranks = input.shard_ranks;
  const std::int64_t near = input.secondary_ranks, groups = near > 0 ? ranks / near : ranks;
  const auto exchange = [&](std::int64_t values, std::int64_t with) {
    sizes->reduction_buffers +=
        2 * (CountQuantizedBytes(values, QuantizedBits::k4) * with + values * kFloatBytes);
    if (input.keeps_lost_values) {
      sizes->lost_values += CountQuantizedBytes(values, QuantizedBits::k8) * with;
    }
  };
  if (near > 0) exchange(groups * count, near);
  exchange(count, groups);
  if (!input.keeps_lost_values) return;
  const std::int64_t at_once = near > 0 ? groups * count : count;
  sizes->reduction_buffers += 4 * at_once * kFloatBytes;
}

// Every gather goes through the bytes of all shards.
void CountKeptRounded(const FlatLayout& layout, const StepMemoryInput& input, BucketBytes* sizes) {
  sizes->own_parameters = CountQuantizedBytes(layout.shard_numel(), QuantizedBits::k8);
  sizes->gather_buffers = sizes->near_buffers = sizes->own_parameters * input.shard_ranks;
  if (input.secondary_ranks > 0) {
    sizes->secondary_shard = sizes->gather_buffers / input.secondary_ranks;
  }
}

void CountRounding(const BucketShape& shape, const FlatLayout& layout, const StepMemoryInput& input,
                   BucketBytes* sizes) {
  if (!shape.trained && shape.rounded && input.keeps_rounded) {
    return CountKeptRounded(layout, input, sizes);
  }
  if (input.secondary_ranks > 0) {
    sizes->secondary_shard = sizes->parameters / input.secondary_ranks;
  }
  if (!shape.rounded || !shape.trained) return;
  if (input.rounds_weights) {
    sizes->gather_buffers =
        CountQuantizedBytes(layout.shard_numel(), QuantizedBits::k8) * (input.shard_ranks + 1);
  }
  if (input.rounds_gradients) CountRoundedReduction(layout, input, sizes);
}

}  // namespace

BucketBytes CountBucketBytes(const BucketShape& shape, const StepMemoryInput& input) {
  const FlatLayout layout = MakeLayout(shape, input);
  const config::StateTypes& types = input.types;
  const std::int64_t width = shape.of_bytes ? 1 : Width(types.parameter);
  BucketBytes sizes{.own_elements = layout.shard_numel(),
                    .parameters = layout.padded_numel() * width,
                    .own_parameters = layout.shard_numel() * width};
  for (const std::int64_t numel : shape.numels) {
    sizes.largest = std::max(sizes.largest, numel * width);
  }
  CountRounding(shape, layout, input, &sizes);
  if (!shape.trained) return sizes;
  sizes.travelling = layout.padded_numel() * Width(input.travel);
  sizes.gradients = layout.padded_numel() * Width(types.gradient);
  sizes.own_gradients = layout.shard_numel() * Width(types.gradient);
  const std::vector<PlacedRange> ranges = PlaceRanges(shape, layout);
  const std::int64_t updated =
      input.sharding.optimizer ? layout.shard_numel() : layout.padded_numel();
  if (types.has_master_weights()) sizes.masters = updated * Width(types.master);
  sizes.states = ListMostStates(ranges, layout, input);
  sizes.update_buffers = CountUpdateBuffers(ranges, layout, input);
  sizes.publish_buffers = CountPublishBuffers(layout, input);
  return sizes;
}

}  // namespace ds::zero
