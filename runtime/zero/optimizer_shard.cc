#include "runtime/zero/optimizer_shard.h"

#include <string>
#include <utility>

#include "runtime/optim/kernels/flat_update.h"
#include "runtime/zero/store_source.h"

namespace ds::zero {

using device::MemoryUse;

void AddShardsOf(const Context& context, const FlatParameters& parameters,
                 const CheckpointedRange& held, std::vector<checkpoint::TensorShard>* shards) {
  for (const Piece& piece : parameters.layout().FindPieces(held.range)) {
    const NamedParameter& parameter = parameters.parameter(piece.parameter);
    shards->push_back(
        {.name = parameter.name + held.suffix,
         .placement = parameter.placement,
         .flat_start = piece.parameter_start,
         .source = SourceOf(
             held.store, {held.range.start - held.stored.start + piece.range_start, piece.count}),
         .replica =
             context.ReplicaAlong(held.is_shard ? context.ShardCopyAxes(parameter.placement)
                                                : context.WholeCopyAxes(parameter.placement))});
  }
}

OptimizerShard::OptimizerShard(const Context& context, Bucket& bucket,
                               const optim::Optimizer& optimizer, std::int64_t first_parameter)
    : context_(context), bucket_(bucket), first_parameter_(first_parameter) {
  const FlatLayout& layout = bucket.parameters().layout();
  const int member = context.groups.shards->rank();
  const bool sharded = context.sharding.optimizer;
  own_ = sharded ? layout.shard(member) : layout.whole();
  launch_ = optim::FindFlatUpdate(context.device);
  if (context.dtypes.has_master_weights()) {
    master_ = Store(context, {own_.count, context.dtypes.master, MemoryUse::kMasterWeights});
    master_.Acquire().tensor().copy_(AcquireTarget().tensor());
    bucket.parameters().Stow();
  }
  for (const TrainingRange& range : bucket.ranges()) {
    RangeState& state = states_.emplace_back(
        RangeState{.of = range,
                   .range = sharded ? layout.shard_of(range.range, member) : range.range,
                   .names = optimizer.state_names(bucket.member_of(range).group),
                   .stores = {}});
    for (std::size_t i = 0; i < state.names.size(); ++i) {
      state.stores.emplace_back(
          context, FlatSpec{state.range.count, context.dtypes.state, MemoryUse::kOptimizerState});
      state.stores.back().Acquire().tensor().zero_();
    }
  }
}

Lease OptimizerShard::AcquireTarget() {
  FlatParameters& parameters = bucket_.parameters();
  return context_.sharding.optimizer ? parameters.AcquireShard() : Lease(parameters.full());
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

optim::Part OptimizerShard::MakePart(RangeState& state, std::vector<Lease>* leases) {
  const auto hold = [&](Lease lease) { return leases->emplace_back(std::move(lease)).tensor(); };
  const auto hold_range = [&](Lease lease) {
    return hold(std::move(lease)).narrow(0, state.range.start - own_.start, state.range.count);
  };
  const FlatParameters& parameters = bucket_.parameters();
  const FlatLayout& layout = parameters.layout();
  optim::Part part{.parameter = hold_range(AcquireWeights()),
                   .gradient = hold_range(bucket_.gradients().for_optimizer()),
                   .published = master_.defined() ? hold_range(AcquireTarget()) : at::Tensor(),
                   .launch = launch_,
                   .group = bucket_.member_of(state.of).group,
                   .sharded = context_.sharding.optimizer,
                   .whole_start = state.range.start,
                   .whole_numel = layout.padded_numel()};
  for (Store& store : state.stores) part.state.push_back(hold(store.Acquire()));
  for (const Piece& piece : layout.FindPieces(state.of.range)) {
    part.whole_parameters.push_back(
        {.start = layout.parameter(piece.parameter).start,
         .shape = parameters.parameter(piece.parameter).tensor.sizes().vec()});
  }
  part.segments = ListSegments(state.range, state);
  part.owned = ListSegments(layout.shard_of(state.of.range, context_.groups.shards->rank()), state);
  return part;
}

std::vector<optim::Part> OptimizerShard::MakeParts(std::vector<Lease>* leases) {
  std::vector<optim::Part> parts;
  for (RangeState& state : states_) parts.push_back(MakePart(state, leases));
  return parts;
}

void OptimizerShard::Publish() {
  if (context_.sharding.optimizer) bucket_.parameters().Publish();
}

void OptimizerShard::PublishWeights() {
  if (master_.defined()) AcquireTarget().tensor().copy_(master_.Acquire().tensor());
  Publish();
  Stow();
}

void OptimizerShard::MoveStateToHost() {
  for (RangeState& state : states_) {
    for (Store& store : state.stores) store.Release();
  }
}

void OptimizerShard::MoveBack() {
  master_.Prefetch();
  for (RangeState& state : states_) {
    for (Store& store : state.stores) store.Prefetch();
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
    add({parameters.store(), parameters.kept_range(), own_, "", sharded});
  }
  for (RangeState& state : states_) {
    for (std::size_t i = 0; i < state.stores.size(); ++i) {
      add({state.stores[i], state.range, state.range, "/" + std::string(state.names[i]), sharded});
    }
  }
}

}  // namespace ds::zero
