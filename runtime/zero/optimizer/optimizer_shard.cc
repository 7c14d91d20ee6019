#include "runtime/zero/optimizer/optimizer_shard.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/config/model_state.h"
#include "runtime/optim/kernels/blockwise_state.h"
#include "runtime/optim/kernels/flat_update.h"
#include "runtime/zero/storage/quantized_source.h"
#include "runtime/zero/storage/store_source.h"

namespace ds::zero {

using device::MemoryUse;

namespace {

// Full pages for every dtype.
constexpr std::int64_t kPageElements = offload::AlignedPool::kPage / 2;
// Elements of offloaded tensors that are copied at once.
constexpr std::int64_t kCopiedAtOnce = kPageElements << 11;
// Elements of 8-bit state that are dequantized at once, to fit in the caches.
constexpr std::int64_t kBlockwiseAtOnce = kPageElements << 3;

optim::StateMap MapOf(std::string_view state) {
  return state == "exp_avg_sq" ? optim::StateMap::kUnsigned : optim::StateMap::kSigned;
}

// Sets every value to the byte of 0. A checkpoint has scales for the padding after a parameter's
// last block, but no bytes.
void FillWithZeros(optim::StateMap map, std::int64_t count, Store* store) {
  const float zero = 0.0F;
  std::uint8_t byte = 0;
  float scale = 0.0F;
  optim::QuantizeState(&zero, 1, map, &byte, &scale);
  for (std::int64_t start = 0; start < count; start += kCopiedAtOnce) {
    const FlatRange range{start, std::min(kCopiedAtOnce, count - start)};
    store->Acquire(range, Access::kOverwrite).tensor().fill_(byte);
    store->Offload(range);
  }
}

}  // namespace

OptimizerShard::OptimizerShard(const Context& context, Bucket& bucket,
                               const optim::Optimizer& optimizer, std::int64_t first_parameter,
                               StorageTier storage_tier)
    : context_(context), bucket_(bucket), first_parameter_(first_parameter) {
  const FlatLayout& layout = bucket.parameters().layout();
  const int member = context.groups.shards->rank();
  const bool sharded = context.sharding.optimizer;
  if (!sharded) storage_tier = StorageTier::kHere;
  own_ = sharded ? layout.shard(member) : layout.full_range();
  launch_ = optim::FindFlatUpdate(context.device);
  if (context.dtypes.has_master_weights()) {
    master_ = Store(context,
                    {own_.count, context.dtypes.master, MemoryUse::kMasterWeights, storage_tier});
    CopyWeights(/*to_masters=*/true);
    Offload();
  }
  for (const TrainingRange& range : bucket.ranges()) {
    const optim::ParameterGroup& group = bucket.member_of(range).group;
    RangeState& state = states_.emplace_back(
        RangeState{.of = range,
                   .range = sharded ? layout.shard_of(range.range, member) : range.range,
                   .stored = {},
                   .may_be_split = optimizer.reach(group) == optim::Reach::kElement,
                   .names = optimizer.state_names(group),
                   .stores = {},
                   .scales = {},
                   .saved = {}});
    const std::int64_t ahead =
        storage_tier == StorageTier::kFile ? (state.range.start - own_.start) % kPageElements : 0;
    state.stored = {state.range.start - ahead, state.range.count + ahead};
    MakeState(&state, storage_tier);
  }
  if (context.tiers.rolls_back) AllocateSavedValues(storage_tier);
}

void OptimizerShard::MakeState(RangeState* state, StorageTier storage_tier) {
  const bool blockwise = context_.blockwise_state;
  const FlatSpec spec{state->stored.count, blockwise ? c10::kByte : context_.dtypes.state,
                      MemoryUse::kOptimizerState, storage_tier};
  const FlatSpec scales{config::CountStateBlocks(state->range.count), c10::kFloat,
                        MemoryUse::kOptimizerState};
  for (std::size_t i = 0; i < state->names.size(); ++i) {
    Store& store = state->stores.emplace_back(context_, spec);
    if (blockwise) {
      state->scales.emplace_back(context_, scales).Zero();
      FillWithZeros(MapOf(state->names[i]), state->stored.count, &store);
    } else {
      store.Zero();
    }
    store.Offload();
  }
}

void OptimizerShard::AllocateSavedValues(StorageTier storage_tier) {
  const bool masters = master_.defined();
  saved_weights_ = Store(
      context_, {own_.count, masters ? context_.dtypes.master : context_.dtypes.parameter,
                 masters ? MemoryUse::kMasterWeights : MemoryUse::kOptimizerState, storage_tier});
  for (RangeState& state : states_) {
    const FlatSpec spec{state.stored.count, context_.dtypes.state, MemoryUse::kOptimizerState,
                        storage_tier};
    for (std::size_t i = 0; i < state.names.size(); ++i) state.saved.emplace_back(context_, spec);
  }
}

Lease OptimizerShard::AcquireTarget(const FlatRange& range, Access access) {
  FlatParameters& parameters = bucket_.parameters();
  if (context_.sharding.optimizer) return parameters.AcquireShard(range, access);
  return Lease(parameters.full().narrow(0, range.start, range.count));
}

template <typename Visit>
void OptimizerShard::ForEachPiece(Visit visit) {
  const bool is_offloaded = master_.is_offloaded() || bucket_.parameters().is_offloaded();
  const std::int64_t at_once = is_offloaded ? std::min(own_.count, kCopiedAtOnce) : own_.count;
  for (std::int64_t start = 0; start < own_.count; start += at_once) {
    visit(FlatRange{start, std::min(at_once, own_.count - start)});
  }
}

void OptimizerShard::OffloadWeights(const FlatRange& range) {
  master_.Offload(range);
  bucket_.parameters().OffloadShard(range);
}

void OptimizerShard::CopyWeights(bool to_masters) {
  ForEachPiece([&](const FlatRange& range) {
    {
      const Lease master = master_.Acquire(range, to_masters ? Access::kOverwrite : Access::kRead);
      const Lease target = AcquireTarget(range, to_masters ? Access::kRead : Access::kOverwrite);
      (to_masters ? master : target).tensor().copy_((to_masters ? target : master).tensor());
    }
    OffloadWeights(range);
  });
}

std::vector<optim::Segment> OptimizerShard::ListSegments(const FlatRange& range,
                                                         const RangeState& state) const {
  std::vector<optim::Segment> segments;
  for (const Piece& piece : bucket_.parameters().layout().FindPieces(range)) {
    segments.push_back({.parameter = first_parameter_ + piece.parameter,
                        .start = range.start + piece.range_start - state.range.start,
                        .count = piece.count});
  }
  return segments;
}

std::vector<OptimizerShard::SubGroup> OptimizerShard::ListSubGroups(
    std::int64_t most_elements) const {
  std::vector<SubGroup> sub_groups;
  const bool in_memory = context_.tiers.optimizer != StorageTier::kFile;
  if (context_.blockwise_state && in_memory) {
    most_elements = std::min(most_elements, kBlockwiseAtOnce);
  }
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const FlatRange& all = states_[i].range;
    if (!states_[i].may_be_split || all.count <= most_elements) {
      sub_groups.push_back({i, all});
      continue;
    }
    for (std::int64_t start = all.start; start < all.end();) {
      const std::int64_t boundary =
          own_.start + ((start - own_.start) / most_elements + 1) * most_elements;
      const std::int64_t end = std::min(boundary, all.end());
      sub_groups.push_back({i, {start, end - start}});
      start = end;
    }
  }
  return sub_groups;
}

void OptimizerShard::Prefetch(const SubGroup& sub_group) {
  bucket_.gradients().Prefetch({sub_group.range.start - own_.start, sub_group.range.count});
  PrefetchState(sub_group);
}

void OptimizerShard::PrefetchState(const SubGroup& sub_group) {
  const FlatRange own{sub_group.range.start - own_.start, sub_group.range.count};
  if (master_.is_offloaded()) master_.Prefetch(own);
  if (!master_.defined()) bucket_.parameters().PrefetchShard(own);
  RangeState& state = states_[sub_group.state];
  for (Store& store : state.stores) {
    if (store.is_offloaded())
      store.Prefetch({sub_group.range.start - state.stored.start, sub_group.range.count});
  }
}

optim::OptimizerSlice OptimizerShard::MakeTarget(const SubGroup& sub_group, SliceUse use,
                                                 std::vector<Lease>* leases) {
  const FlatRange own{sub_group.range.start - own_.start, sub_group.range.count};
  RangeState& state = states_[sub_group.state];
  optim::OptimizerSlice slice{.group = bucket_.member_of(state.of).group};
  const auto hold = [&](Lease lease) { return leases->emplace_back(std::move(lease)).tensor(); };
  if (use == SliceUse::kStateOnly) {
    const FlatRange stored{sub_group.range.start - state.stored.start, sub_group.range.count};
    for (Store& store : state.stores) {
      slice.state.push_back(hold(store.AcquireOnOwnTier(stored, Access::kUpdate)));
    }
    return slice;
  }
  slice.launch = launch_;
  slice.parameter = hold(AcquireTarget(own, Access::kUpdate));
  if (use == SliceUse::kTarget) slice.gradient = hold(bucket_.gradients().for_optimizer(own));
  return slice;
}

optim::OptimizerSlice OptimizerShard::MakeSlice(const SubGroup& sub_group, SliceUse use,
                                                std::vector<Lease>* leases) {
  if (use == SliceUse::kTarget || use == SliceUse::kTargetAlone || use == SliceUse::kStateOnly) {
    return MakeTarget(sub_group, use, leases);
  }
  const auto hold = [&](Lease lease) { return leases->emplace_back(std::move(lease)).tensor(); };
  const FlatRange own{sub_group.range.start - own_.start, sub_group.range.count};
  RangeState& state = states_[sub_group.state];
  const bool updates = use != SliceUse::kReview;
  const bool publishes = updates && master_.defined();
  // Optimizers that need full ranges do not write the padding between parameters.
  const bool writes_all = state.may_be_split && use != SliceUse::kDecided;
  const Access published = writes_all ? Access::kOverwrite : Access::kUpdate;
  optim::OptimizerSlice slice{
      .parameter = hold(AcquireWeights(own, updates ? Access::kUpdate : Access::kRead)),
      .gradient = hold(bucket_.gradients().for_optimizer(own)),
      .published = publishes ? hold(AcquireTarget(own, published)) : at::Tensor(),
      .launch = launch_,
      .group = bucket_.member_of(state.of).group};
  LendState(sub_group, &slice, leases);
  if (sub_group.range == state.range) Describe(state, &slice);
  if (use == SliceUse::kTry) Keep(sub_group, slice);
  if (use == SliceUse::kRetry) Restore(sub_group, slice);
  return slice;
}

FlatRange OptimizerShard::ScalesOf(const SubGroup& sub_group) const {
  const std::int64_t start = sub_group.range.start - states_[sub_group.state].range.start;
  return {start / config::kStateBlock, config::CountStateBlocks(sub_group.range.count)};
}

void OptimizerShard::LendState(const SubGroup& sub_group, optim::OptimizerSlice* slice,
                               std::vector<Lease>* leases) {
  RangeState& state = states_[sub_group.state];
  const FlatRange stored{sub_group.range.start - state.stored.start, sub_group.range.count};
  for (std::size_t i = 0; i < state.stores.size(); ++i) {
    at::Tensor lent = leases->emplace_back(state.stores[i].Acquire(stored)).tensor();
    if (context_.blockwise_state) {
      const Lease scales = state.scales[i].Acquire(ScalesOf(sub_group), Access::kRead);
      const at::Tensor bytes = std::exchange(lent, at::empty({stored.count}, at::kFloat));
      optim::DequantizeState(bytes.const_data_ptr<std::uint8_t>(),
                             scales.tensor().const_data_ptr<float>(), stored.count,
                             MapOf(state.names[i]), lent.mutable_data_ptr<float>());
    }
    slice->state.push_back(std::move(lent));
  }
}

void OptimizerShard::KeepState(const SubGroup& sub_group, const optim::OptimizerSlice& slice) {
  if (!context_.blockwise_state) return;
  RangeState& state = states_[sub_group.state];
  const FlatRange stored{sub_group.range.start - state.stored.start, sub_group.range.count};
  for (std::size_t i = 0; i < state.stores.size(); ++i) {
    const Lease bytes = state.stores[i].Acquire(stored);
    const Lease scales = state.scales[i].Acquire(ScalesOf(sub_group));
    optim::QuantizeState(slice.state[i].const_data_ptr<float>(), stored.count,
                         MapOf(state.names[i]), bytes.tensor().mutable_data_ptr<std::uint8_t>(),
                         scales.tensor().mutable_data_ptr<float>());
  }
}

void OptimizerShard::Keep(const SubGroup& sub_group, const optim::OptimizerSlice& slice) {
  const FlatRange own{sub_group.range.start - own_.start, sub_group.range.count};
  saved_weights_.Acquire(own, Access::kOverwrite).tensor().copy_(slice.parameter);
  RangeState& state = states_[sub_group.state];
  const FlatRange range{sub_group.range.start - state.stored.start, sub_group.range.count};
  for (std::size_t i = 0; i < state.saved.size(); ++i) {
    state.saved[i].Acquire(range, Access::kOverwrite).tensor().copy_(slice.state[i]);
  }
}

void OptimizerShard::Restore(const SubGroup& sub_group, const optim::OptimizerSlice& slice) {
  const FlatRange own{sub_group.range.start - own_.start, sub_group.range.count};
  slice.parameter.copy_(saved_weights_.Acquire(own, Access::kRead).tensor());
  RangeState& state = states_[sub_group.state];
  const FlatRange range{sub_group.range.start - state.stored.start, sub_group.range.count};
  for (std::size_t i = 0; i < state.saved.size(); ++i) {
    slice.state[i].copy_(state.saved[i].Acquire(range, Access::kRead).tensor());
  }
}

void OptimizerShard::Describe(const RangeState& state, optim::OptimizerSlice* slice) const {
  const FlatParameters& parameters = bucket_.parameters();
  const FlatLayout& layout = parameters.layout();
  slice->sharded = context_.sharding.optimizer;
  slice->full_start = state.range.start;
  slice->full_numel = layout.padded_numel();
  for (const Piece& piece : layout.FindPieces(state.of.range)) {
    slice->full_parameters.push_back(
        {.name = parameters.parameter(piece.parameter).name,
         .start = layout.parameter(piece.parameter).start,
         .shape = parameters.parameter(piece.parameter).tensor.sizes().vec()});
  }
  slice->segments = ListSegments(state.range, state);
  slice->owned =
      ListSegments(layout.shard_of(state.of.range, context_.groups.shards->rank()), state);
}

void OptimizerShard::Offload(const SubGroup& sub_group) {
  const FlatRange own{sub_group.range.start - own_.start, sub_group.range.count};
  bucket_.gradients().Offload(own);
  OffloadWeights(own);
  saved_weights_.Offload(own);
  RangeState& state = states_[sub_group.state];
  for (std::vector<Store>* stores : {&state.stores, &state.saved}) {
    for (Store& store : *stores) {
      store.Offload({sub_group.range.start - state.stored.start, sub_group.range.count});
    }
  }
}

void OptimizerShard::Settle() {
  master_.Settle();
  bucket_.parameters().store().Settle();
  if (saved_weights_.defined()) saved_weights_.Settle();
  for (RangeState& state : states_) {
    for (Store& store : state.stores) store.Settle();
    for (Store& store : state.saved) store.Settle();
  }
}

void OptimizerShard::Publish() {
  if (context_.sharding.optimizer) bucket_.parameters().Publish();
}

void OptimizerShard::Offload() {
  master_.Offload();
  if (!bucket_.parameters().is_arriving()) bucket_.parameters().Offload();
}

void OptimizerShard::PublishWeights() {
  if (master_.defined()) CopyWeights(/*to_masters=*/false);
  Publish();
  Offload();
}

// Checkpoints and moves to the host.

void AddShardsOf(const Context& context, const FlatParameters& parameters,
                 const CheckpointedRange& held, std::vector<checkpoint::TensorShard>* shards) {
  for (const Piece& piece : parameters.layout().FindPieces(held.range)) {
    const NamedParameter& parameter = parameters.parameter(piece.parameter);
    const FlatRange range{held.range.start - held.stored.start + piece.range_start, piece.count};
    shards->push_back(
        {.name = parameter.name + held.suffix,
         .placement = parameter.placement,
         .flat_start = piece.parameter_start,
         .source = held.quantized_from ? SourceOfQuantized(held.store, held.stored.count, range,
                                                           *held.quantized_from)
                                       : SourceOf(held.store, range),
         .replica = context.ReplicaOf(parameter.placement,
                                      held.is_shard ? context.ShardCopyAxes(parameter.placement)
                                                    : context.FullCopyAxes(parameter.placement))});
  }
}

void OptimizerShard::MoveStateToHost() {
  for (RangeState& state : states_) {
    for (Store& store : state.stores) store.Release();
    for (Store& store : state.scales) store.Release();
  }
}

// Offloaded stores stay offloaded between steps.
void OptimizerShard::MoveBack() {
  if (!master_.is_offloaded()) master_.Prefetch();
  for (RangeState& state : states_) {
    for (Store& store : state.stores) {
      if (!store.is_offloaded()) store.Prefetch();
    }
    for (Store& store : state.scales) store.Prefetch();
  }
}

// Each block of a parameter has one scale, and blocks are never split.
void OptimizerShard::AddScales(RangeState& state, std::vector<checkpoint::TensorShard>* shards) {
  const bool sharded = context_.sharding.optimizer;
  for (std::size_t i = 0; i < state.scales.size(); ++i) {
    for (const Piece& piece : bucket_.parameters().layout().FindPieces(state.range)) {
      const NamedParameter& parameter = bucket_.parameters().parameter(piece.parameter);
      checkpoint::Placement placement = parameter.placement;
      placement.global_shape = {config::CountStateBlocks(parameter.tensor.numel())};
      const auto axes = sharded ? context_.ShardCopyAxes(parameter.placement)
                                : context_.FullCopyAxes(parameter.placement);
      shards->push_back(
          {.name = parameter.name + "/" + std::string(state.names[i]) + "_scales",
           .placement = placement,
           .flat_start = piece.parameter_start / config::kStateBlock,
           .source = SourceOf(state.scales[i], {piece.range_start / config::kStateBlock,
                                                config::CountStateBlocks(piece.count)}),
           .replica = context_.ReplicaOf(parameter.placement, axes)});
    }
  }
}

void OptimizerShard::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  const bool sharded = context_.sharding.optimizer;
  FlatParameters& parameters = bucket_.parameters();
  const auto add = [&](const CheckpointedRange& held) {
    AddShardsOf(context_, parameters, held, shards);
  };
  if (master_.defined()) {
    add({master_, own_, own_, "", sharded});
  } else {
    add({parameters.store(), parameters.stored_range(), own_, "", sharded});
  }
  for (RangeState& state : states_) {
    for (std::size_t i = 0; i < state.stores.size(); ++i) {
      add({state.stores[i], state.stored, state.range, "/" + std::string(state.names[i]), sharded});
    }
    AddScales(state, shards);
  }
}

}  // namespace ds::zero
