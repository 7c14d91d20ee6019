#include "runtime/plan/zero/bucket_sizes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/base/saturating.h"
#include "runtime/config/muon_memory.h"
#include "runtime/plan/zero/flat_layout.h"
#include "runtime/plan/zero/quantized_bytes.h"
#include "runtime/plan/zero/zenflow_schedule.h"

namespace ds::zero {
namespace {

using config::Width;

class Measurement {
 public:
  explicit Measurement(const StepMemoryInput& input) : input_(input) {
    std::vector<std::int64_t> numels;
    for (const UnitShape& unit : input.units) {
      for (const BucketShape& bucket : unit.buckets) {
        if (!bucket.trained) continue;
        numels.push_back(CountBucketBytes(bucket, input).own_elements);
      }
    }
    keeps_state_ = ChooseResident(numels, input.tiers.optimizer_share);
  }

  MeasuredModel Run() {
    for (const UnitShape& shape : input_.units) {
      const StorageTier parameters = ChooseStorageTier(shape);
      std::vector<BucketSizes>& unit = model_.units.emplace_back();
      for (const BucketShape& bucket : shape.buckets) {
        unit.push_back(MeasureBucket(bucket, parameters));
      }
    }
    CountPrefetchedSubGroups();
    CountFileBuffers();
    model_.here.other += std::min(input_.tiers.leaving_bytes, model_.offload.host);
    return std::move(model_);
  }

 private:
  BucketSizes MeasureBucket(const BucketShape& shape, StorageTier parameters);
  void MeasureState(BucketSizes* bucket);
  void MeasureSubGroup(std::int64_t masters, std::int64_t state, BucketSizes* bucket) const;
  void CountPrefetchedSubGroups();
  void MeasureZenFlow(BucketSizes* bucket);
  StorageTier ChooseStorageTier(const UnitShape& shape);
  StorageTier Put(StorageTier storage_tier, std::int64_t bytes, std::int64_t* here);
  void CountFileBuffers();

  const StepMemoryInput& input_;
  MeasuredModel model_;
  std::vector<bool> keeps_state_;              // by trained bucket
  std::size_t trained_ = 0;                    // buckets so far
  std::int64_t resident_parameter_bytes_ = 0;  // of units that stay here
};

// Stores that are too small for a file stay where the rank computes.
StorageTier Measurement::Put(StorageTier storage_tier, std::int64_t bytes, std::int64_t* here) {
  const std::int64_t smallest = std::max<std::int64_t>(1, input_.tiers.smallest_bytes);
  if (storage_tier == StorageTier::kFile && bytes < smallest) storage_tier = StorageTier::kHere;
  (storage_tier == StorageTier::kHere   ? *here
   : storage_tier == StorageTier::kHost ? model_.offload.host
                                        : model_.offload.files) += bytes;
  return storage_tier;
}

// The first units stay in memory, as many as allowed, as in ShardedModel.
StorageTier Measurement::ChooseStorageTier(const UnitShape& shape) {
  const Tiers& tiers = input_.tiers;
  if (!input_.sharding.parameters || tiers.parameters == StorageTier::kHere)
    return StorageTier::kHere;
  std::int64_t bytes = 0;
  for (const BucketShape& bucket : shape.buckets) {
    const std::int64_t width = bucket.of_bytes ? 1 : Width(input_.types.parameter);
    bytes += width * std::accumulate(bucket.numels.begin(), bucket.numels.end(), std::int64_t{0}) /
             input_.FindStateSharding(bucket).shard_ranks;
  }
  if (bytes > tiers.resident_parameter_bytes - resident_parameter_bytes_) return tiers.parameters;
  resident_parameter_bytes_ += bytes;
  return tiers.resident_parameters;
}

BucketSizes Measurement::MeasureBucket(const BucketShape& shape, StorageTier parameters) {
  const StateSharding state_sharding = input_.FindStateSharding(shape);
  BucketSizes bucket{.bytes = CountBucketBytes(shape, input_),
                     .trained = shape.trained,
                     .of_experts = shape.of_experts && input_.of_experts,
                     .on_two_stages = shape.on_two_stages,
                     .sharding = state_sharding.sharding};
  if (state_sharding.sharding.parameters) {
    const std::int64_t shard = bucket.bytes.own_parameters;
    const StorageTier storage_tier = Put(parameters, shard, &model_.here.parameters);
    bucket.fetched_bytes = storage_tier == StorageTier::kHere ? 0 : shard;
    bucket.parameters_on_host = storage_tier == StorageTier::kHost;
  } else {
    model_.here.parameters += bucket.bytes.parameters;
  }
  if (shape.trained) MeasureState(&bucket);
  return bucket;
}

void Measurement::MeasureState(BucketSizes* bucket) {
  const BucketBytes& bytes = bucket->bytes;
  const bool sharded = bucket->sharding.optimizer;
  const bool stays = keeps_state_[trained_++];
  const StorageTier storage_tier = sharded && !stays ? input_.tiers.optimizer : StorageTier::kHere;
  const bool masters = input_.types.has_master_weights();
  std::vector<std::int64_t> states = bytes.states;
  std::int64_t brought_masters = 0, brought_state = 0;
  for (int i = 0; i < (input_.tiers.rolls_back ? 2 : 1); ++i) {
    if (i > 0) {  // the copy of the previous values
      states.insert(states.end(), bytes.states.begin(), bytes.states.end());
      if (!masters) states.push_back(sharded ? bytes.own_parameters : bytes.parameters);
    }
    if (Put(storage_tier, bytes.masters, &model_.here.master_weights) == StorageTier::kHost) {
      brought_masters += bytes.masters;
    }
  }
  for (const std::int64_t state : states) {
    const StorageTier put = Put(storage_tier, state, &model_.here.optimizer_state);
    if (put == StorageTier::kHost) brought_state += state;
  }
  MeasureSubGroup(brought_masters, brought_state, bucket);
  if (input_.zenflow) MeasureZenFlow(bucket);
  if (!sharded) return;
  std::int64_t none = 0;  // gradients come later
  const bool is_used_at_once =
      input_.tiers.updates_in_backward && !input_.tiers.rolls_back && input_.micro_batches == 1;
  bucket->own_storage_tier = stays || is_used_at_once
                                 ? StorageTier::kHere
                                 : Put(input_.tiers.gradients, bytes.own_gradients, &none);
}

// A sub-group brings its share of these bytes; ZenFlow updates full buckets.
void Measurement::MeasureSubGroup(std::int64_t masters, std::int64_t state,
                                  BucketSizes* bucket) const {
  const std::int64_t elements = std::max<std::int64_t>(1, bucket->bytes.own_elements);
  const std::int64_t most = input_.tiers.most_elements;
  bucket->has_sub_groups = input_.splits_sub_groups && !input_.zenflow && elements > most;
  const auto part = [&](std::int64_t bytes) {
    return bucket->has_sub_groups ? bytes / elements * most : bytes;
  };
  bucket->brought.parameters = part(bucket->parameters_on_host ? bucket->bytes.own_parameters : 0);
  bucket->brought.master_weights = part(masters);
  bucket->brought.optimizer_state = part(state);
}

// The next sub-group is read during an update: of the same bucket or of the next one.
void Measurement::CountPrefetchedSubGroups() {
  if (!input_.tiers.reads_ahead) return;
  std::vector<BucketSizes*> trained;
  for (auto& unit : model_.units) {
    for (auto& bucket : unit) trained.push_back(&bucket);
  }
  std::erase_if(trained, [](const BucketSizes* bucket) { return !bucket->trained; });
  if (input_.tiers.updates_in_backward) std::reverse(trained.begin(), trained.end());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const std::size_t ahead = trained[i]->has_sub_groups ? i : i + 1;
    if (ahead == trained.size()) break;
    HeldMemory& brought = trained[i]->brought;
    const HeldMemory next = trained[ahead]->brought;
    brought.parameters += next.parameters;
    brought.master_weights += next.master_weights;
    brought.optimizer_state += next.optimizer_state;
  }
}

// Counts gradients that accumulate in fp32 for the full update, independent of the optimizer ratio,
// and the important columns' moments, indices and masters.
void Measurement::MeasureZenFlow(BucketSizes* bucket) {
  constexpr std::int64_t kFloat = sizeof(float), kIndexBytes = sizeof(std::int64_t);
  const config::ZenFlowConfig& zenflow = *input_.zenflow;
  const BucketBytes& bytes = bucket->bytes;
  const bool masters = input_.types.has_master_weights(), sharded = input_.sharding.optimizer;
  const StorageTier storage_tier = sharded ? input_.tiers.optimizer : StorageTier::kHere;
  const std::int64_t weights = sharded ? bytes.own_parameters : bytes.parameters;
  const std::int64_t elements = weights / Width(input_.types.parameter);
  const std::int64_t important = CountImportant(zenflow, elements);
  HeldMemory& here = model_.here;
  Put(storage_tier, elements * kFloat * (zenflow.overlap_step ? 2 : 1), &here.optimizer_state);
  const bool on_gpu = input_.tiers.optimizer == StorageTier::kHost;
  const StorageTier moments = zenflow.offload && on_gpu ? StorageTier::kHost : StorageTier::kHere;
  if (Put(moments, important * 2 * kFloat, &here.optimizer_state) == StorageTier::kHost) {
    bucket->brought.optimizer_state += important * 2 * kFloat;
  }
  here.optimizer_state += important * kIndexBytes;
  if (masters) here.master_weights += important * Width(input_.types.master);
  if (!masters && zenflow.overlap_step) Put(storage_tier, weights, &here.master_weights);
  // The mean gradient is brought to the device of the update.
  if (storage_tier == StorageTier::kHost && !zenflow.overlap_step)
    bucket->bytes.update_buffers += elements * kFloat;
}

// Counts host buffers of data read from files, for one sub-group of the update or during a block's
// backward, and of data that waits to be written or reused.
void Measurement::CountFileBuffers() {
  const Tiers& tiers = input_.tiers;
  const std::int64_t in_files = model_.offload.files;
  if (in_files == 0) return;
  const config::StateTypes& types = input_.types;
  std::int64_t largest_own = 0, largest_fetched = 0;
  for (const std::vector<BucketSizes>& unit : model_.units) {
    for (const BucketSizes& bucket : unit) {
      largest_own = std::max(largest_own, bucket.bytes.own_gradients);
      if (bucket.parameters_on_host) continue;
      largest_fetched = std::max(largest_fetched, bucket.fetched_bytes);
    }
  }
  std::int64_t of_element =
      Width(types.parameter) + Width(types.gradient) +
      input_.optimizer_states * types.StateBytes(config::kStateBlock) / config::kStateBlock;
  if (types.has_master_weights()) of_element += Width(types.master);
  if (tiers.rolls_back) {  // one after the other
    of_element += std::max(Width(types.master), Width(types.state));
  }
  const std::int64_t largest = largest_own / Width(types.gradient);
  const std::int64_t elements =
      input_.splits_sub_groups ? std::min(largest, tiers.most_elements) : largest;
  // The first sub-group of the next unit is read while the last one of the previous unit is
  // updated.
  const int sub_groups = tiers.reads_ahead ? (tiers.updates_in_backward ? 3 : 2) : 1;
  const std::int64_t sub_group_bytes = elements * of_element * sub_groups;
  const bool two_kinds =
      tiers.parameters == StorageTier::kFile && tiers.optimizer == StorageTier::kFile;
  const std::int64_t waiting = SaturatingProduct(tiers.waiting_bytes, two_kinds ? 4 : 2);
  // One is read, one is in transit; with overlap the needed unit's gather is not finished either.
  const int fetched = input_.overlap ? 3 : 2;
  const std::int64_t used = std::max(sub_group_bytes, 2 * largest_own) + fetched * largest_fetched;
  model_.offload.file_buffers = std::min(in_files, used + waiting);
  if (tiers.copies_from_files) model_.here.other += std::min(in_files, used);
}

}  // namespace

MeasuredModel MeasureBuckets(const StepMemoryInput& input) { return Measurement(input).Run(); }

namespace {

constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));

FlatLayout MakeLayout(const BucketShape& shape, const StepMemoryInput& input,
                      const StateSharding& state_sharding) {
  std::vector<int> starts;
  for (const RangeShape& range : shape.ranges) starts.push_back(range.first);
  return FlatLayout(shape.numels, state_sharding.shard_ranks, starts,
                    shape.rounded           ? kQuantizationBlock
                    : input.types.blockwise ? config::kStateBlock
                                            : 1);
}

// A range in the layout, with its shape.
struct PlacedRange {
  FlatRange range;
  RangeShape shape;
};

std::vector<PlacedRange> PlaceRanges(const BucketShape& shape, const FlatLayout& layout) {
  if (shape.ranges.empty()) return {{layout.full_range(), {}}};
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

// Lists the states that one rank keeps for the ranges, value by value.
std::vector<std::int64_t> ListStates(const std::vector<PlacedRange>& ranges,
                                     const FlatLayout& layout, const StepMemoryInput& input,
                                     bool sharded, int rank) {
  std::vector<std::int64_t> states;
  for (const PlacedRange& placed : ranges) {
    const std::int64_t own =
        sharded ? layout.shard_of(placed.range, rank).count : placed.range.count;
    const int count = input.optimizer_states - (placed.shape.muon ? 1 : 0);
    states.insert(states.end(), static_cast<std::size_t>(count), input.types.StateBytes(own));
  }
  return states;
}

// Lists the states of the rank with the most: if ranges differ in size per element, the first or
// the last rank.
std::vector<std::int64_t> ListMostStates(const std::vector<PlacedRange>& ranges,
                                         const FlatLayout& layout, const StepMemoryInput& input,
                                         const StateSharding& state_sharding) {
  const auto sum = [](const std::vector<std::int64_t>& states) {
    return std::accumulate(states.begin(), states.end(), std::int64_t{0});
  };
  std::vector<std::int64_t> first =
      ListStates(ranges, layout, input, state_sharding.sharding.optimizer, 0);
  std::vector<std::int64_t> last = ListStates(
      ranges, layout, input, state_sharding.sharding.optimizer, state_sharding.shard_ranks - 1);
  return sum(first) >= sum(last) ? first : last;
}

std::int64_t CountUpdateBuffers(const std::vector<PlacedRange>& ranges, const FlatLayout& layout,
                                bool sharded) {
  std::int64_t most = 0;
  for (const auto& [range, shape] : ranges) {
    if (!shape.muon) continue;
    const std::int64_t elements =
        config::CountMuonElements({.views = sharded ? layout.shard_of(range, 0).count : range.count,
                                   .shard = layout.shard_numel(),
                                   .full = layout.padded_numel(),
                                   .sharded = sharded,
                                   .iteration = shape.iteration});
    most = std::max(most, elements * kFloatBytes);
  }
  return most;
}

// Counts the buffers of FlatParameters::GatherInPieces.
std::int64_t CountPublishBuffers(const FlatLayout& layout, const StepMemoryInput& input,
                                 const StateSharding& state_sharding) {
  const bool publishes = state_sharding.sharding.optimizer && !state_sharding.sharding.parameters;
  const std::int64_t elements = input.publish_elements.value_or(layout.padded_numel());
  if (!publishes || elements >= layout.padded_numel()) return 0;
  const std::int64_t of_shard =
      std::max(elements / state_sharding.shard_ranks, FlatLayout::kShardMultiple);
  return state_sharding.shard_ranks * of_shard * Width(input.types.parameter);
}

// Counts the buffers of QuantizedReduction, which quantizes a value once per level.
void CountRoundedReduction(const FlatLayout& layout, const StepMemoryInput& input,
                           BucketBytes* sizes) {
  const std::int64_t count = layout.shard_numel(), ranks = input.shard_ranks;
  const std::int64_t near = input.secondary_ranks, groups = near > 0 ? ranks / near : ranks;
  const auto exchange = [&](std::int64_t values, std::int64_t with) {
    sizes->rounded_exchange += CountQuantizedBytes(values, QuantizedBits::k4) * with;
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

// Every gather copies the bytes of all shards.
void CountStoredQuantized(const FlatLayout& layout, const StepMemoryInput& input,
                          BucketBytes* sizes) {
  sizes->own_parameters = CountQuantizedBytes(layout.shard_numel(), QuantizedBits::k8);
  sizes->gather_buffers = sizes->near_buffers = sizes->own_parameters * input.shard_ranks;
  sizes->gathered = sizes->near_gathered = sizes->gather_buffers;
  if (input.secondary_ranks > 0) {
    sizes->secondary_shard = sizes->gather_buffers / input.secondary_ranks;
  }
}

void CountRounding(const BucketShape& shape, const FlatLayout& layout, const StepMemoryInput& input,
                   BucketBytes* sizes) {
  if (!shape.trained && shape.rounded && input.keeps_rounded) {
    return CountStoredQuantized(layout, input, sizes);
  }
  if (input.secondary_ranks > 0) {
    sizes->secondary_shard = sizes->parameters / input.secondary_ranks;
  }
  if (!shape.rounded || !shape.trained) return;
  if (input.rounds_weights) {
    const std::int64_t shard = CountQuantizedBytes(layout.shard_numel(), QuantizedBits::k8);
    sizes->gathered = shard * input.shard_ranks;
    sizes->gather_buffers = sizes->gathered + shard;
  }
  if (input.rounds_gradients) CountRoundedReduction(layout, input, sizes);
}

}  // namespace

BucketBytes CountBucketBytes(const BucketShape& shape, const StepMemoryInput& input) {
  const StateSharding state_sharding = input.FindStateSharding(shape);
  const FlatLayout layout = MakeLayout(shape, input, state_sharding);
  const config::StateTypes& types = input.types;
  const std::int64_t width = shape.of_bytes ? 1 : Width(types.parameter);
  BucketBytes sizes{.own_elements = layout.shard_numel(),
                    .parameters = layout.padded_numel() * width,
                    .own_parameters = layout.shard_numel() * width};
  sizes.gathered = sizes.near_gathered = sizes.parameters;
  for (const std::int64_t numel : shape.numels) {
    sizes.largest = std::max(sizes.largest, numel * width);
  }
  CountRounding(shape, layout, input, &sizes);
  if (!shape.trained) return sizes;
  sizes.travelling = layout.padded_numel() * Width(input.reduction_type);
  sizes.gradients = layout.padded_numel() * Width(types.gradient);
  sizes.own_gradients = layout.shard_numel() * Width(types.gradient);
  const std::vector<PlacedRange> ranges = PlaceRanges(shape, layout);
  const std::int64_t updated =
      state_sharding.sharding.optimizer ? layout.shard_numel() : layout.padded_numel();
  if (types.has_master_weights()) sizes.masters = updated * Width(types.master);
  sizes.states = ListMostStates(ranges, layout, input, state_sharding);
  sizes.update_buffers = CountUpdateBuffers(ranges, layout, state_sharding.sharding.optimizer);
  sizes.publish_buffers = CountPublishBuffers(layout, input, state_sharding);
  return sizes;
}

SimulatedBucket::SimulatedBucket(int unit, const BucketSizes& sizes, const StepMemoryInput& input,
                                 RankBooks* books)
    : unit_(unit), input_(input), books_(*books), sizes_(sizes) {
  if (sizes.sharding.parameters) {
    books_.pool.AddUser(bytes().parameters);
    books_.pool.Take(bytes().parameters);
  }
  if (trained() && sizes.sharding.gradients) books_.pool.AddUser(block_bytes());
}

void SimulatedBucket::BeginGather() {
  books_.pool.Take(bytes().parameters);
  has_.arriving = true;
  books_.held.comm_buffers += has_.near ? bytes().near_buffers : bytes().gather_buffers;
}

void SimulatedBucket::EndGather() {
  if (!std::exchange(has_.arriving, false)) return;
  books_.held.comm_buffers -= has_.near ? bytes().near_buffers : bytes().gather_buffers;
  if (std::exchange(has_.offloads, false)) Offload();
  if (has_.near || bytes().secondary_shard == 0) return;
  has_.near = true;
  if (!std::exchange(has_.secondary, true)) books_.held.comm_buffers += bytes().secondary_shard;
}

void SimulatedBucket::Release() {
  if (!sharding().parameters) return;
  EndGather();
  books_.pool.Return(bytes().parameters);
}

// Moves shards from the host to the GPU, or back. File reads are counted with the file buffers.
void SimulatedBucket::Fetch() {
  if (sizes_.parameters_on_host) books_.held.parameters += sizes_.fetched_bytes;
}

void SimulatedBucket::Offload() {
  if (has_.arriving) {
    has_.offloads = true;
    return;
  }
  if (sizes_.parameters_on_host) books_.held.parameters -= sizes_.fetched_bytes;
}

void SimulatedBucket::AcquireGradients() {
  if (!trained()) return;
  if (sizes_.sharding.gradients) {
    if (!std::exchange(has_.block, true)) books_.pool.Take(block_bytes());
  } else if (!std::exchange(has_.full, true)) {
    books_.held.gradients += bytes().gradients;
  }
}

void SimulatedBucket::BeginReduction() {
  has_.reducing = true;
  const bool into_shard = sizes_.sharding.optimizer;
  if (into_shard && !std::exchange(has_.own, true) &&
      sizes_.own_storage_tier == StorageTier::kHere) {
    books_.held.gradients += bytes().own_gradients;
  }
  if (!std::exchange(has_.lost_values, true)) books_.held.comm_buffers += bytes().lost_values;
  books_.held.comm_buffers += bytes().reduction_buffers;
}

void SimulatedBucket::EndReduction() {
  if (!std::exchange(has_.reducing, false)) return;
  books_.held.comm_buffers -= bytes().reduction_buffers;
  if (std::exchange(has_.block, false)) books_.pool.Return(block_bytes());
  if (!sizes_.sharding.optimizer || !std::exchange(has_.full, false)) return;
  books_.held.gradients -= bytes().gradients;
}

std::int64_t SimulatedBucket::travelling_copy() const {
  const bool sent_as_stored = sizes_.sharding.gradients && !input_.windows.gradients.full_step;
  return sent_as_stored || input_.reduction_type == input_.types.gradient ? 0 : bytes().travelling;
}

void SimulatedBucket::CountReduction(StepTraffic* traffic) const {
  if (is_alone()) return;
  if (bytes().rounded_exchange > 0) {
    traffic->all_to_all += bytes().rounded_exchange;
  } else if (sharding().optimizer) {
    traffic->reduce_scatter += bytes().travelling;
  } else {
    traffic->all_reduce += bytes().travelling;
  }
}

void SimulatedBucket::CountEnd(bool present, StepTraffic* traffic) const {
  if (!trained()) return;
  if (has_.full && !has_.reducing && !sharding().optimizer) CountReduction(traffic);
  const int shard_ranks = sizes_.of_experts ? input_.of_experts->shard_ranks : input_.shard_ranks;
  if (sharding().optimizer && input_.shard_ranks < input_.gradient_ranks) {
    traffic->all_reduce += bytes().travelling / shard_ranks;
  }
  if (sizes_.on_two_stages) {  // the stages sum their gradients
    traffic->all_reduce += sharding().optimizer ? bytes().own_gradients : bytes().gradients;
  }
  const bool publishes = sharding().parameters ? present : sharding().optimizer;
  if (publishes) traffic->all_gather += bytes().parameters;
}

void SimulatedBucket::BeginUpdate() {
  books_.held.parameters += sizes_.brought.parameters;
  books_.held.master_weights += sizes_.brought.master_weights;
  books_.held.optimizer_state += sizes_.brought.optimizer_state;
  books_.held.other += bytes().update_buffers;
  books_.held.comm_buffers += bytes().publish_buffers;
}

void SimulatedBucket::EndUpdate() {
  books_.held.parameters -= sizes_.brought.parameters;
  books_.held.master_weights -= sizes_.brought.master_weights;
  books_.held.optimizer_state -= sizes_.brought.optimizer_state;
  books_.held.other -= bytes().update_buffers;
  books_.held.comm_buffers -= bytes().publish_buffers;
}

void SimulatedBucket::EndEarlyUpdate() {
  has_.updating = true;
  if (!input_.tiers.overlaps_update) FinishOverlappedUpdate();
}

void SimulatedBucket::FinishOverlappedUpdate() {
  if (!std::exchange(has_.updating, false)) return;
  EndUpdate();
  if (!input_.tiers.rolls_back) DropGradients();
}

void SimulatedBucket::DropGradients() {
  if (std::exchange(has_.own, false) && sizes_.own_storage_tier == StorageTier::kHere) {
    books_.held.gradients -= bytes().own_gradients;
  }
  if (std::exchange(has_.full, false)) books_.held.gradients -= bytes().gradients;
}

void SimulatedBucket::EndStep() { has_.near = has_.full = has_.own = false; }

}  // namespace ds::zero
