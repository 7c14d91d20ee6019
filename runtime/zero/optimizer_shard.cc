#include "runtime/zero/optimizer_shard.h"

#include <c10/core/GradMode.h>

#include "runtime/optim/kernels/flat_update.h"

namespace ds::zero {

using device::MemoryUse;

OptimizerShard::OptimizerShard(const Context& context, Group& group,
                               const optim::Optimizer& optimizer, std::int64_t first_parameter)
    : context_(context), group_(group), first_parameter_(first_parameter) {
  const FlatParameters& parameters = group.parameters;
  state_names_ = optimizer.state_names(parameters.parameter(0).group);
  const bool sharded = context.sharding.optimizer;
  range_ = sharded ? parameters.layout().shard(context.world->rank()) : parameters.layout().whole();
  target_ = sharded ? parameters.shard() : parameters.full();
  const auto booked = [&](c10::ScalarType dtype, MemoryUse use) {
    return MakeBooked(context, {range_.count, dtype, use});
  };
  launch_ = optim::FlatUpdateOf(target_.device());
  if (context.dtypes.has_master_weights()) {
    master_ = booked(context.dtypes.master, MemoryUse::kMasterWeights);
    master_.tensor.copy_(target_);
  }
  for (std::size_t i = 0; i < state_names_.size(); ++i) {
    state_.push_back(booked(context.dtypes.state, MemoryUse::kOptimizerState));
    state_.back().tensor.zero_();
  }
}

optim::Part OptimizerShard::MakePart() const {
  optim::Part part{.parameter = weights(),
                   .gradient = group_.gradients->for_optimizer(),
                   .published = master_.defined() ? target_ : at::Tensor(),
                   .launch = launch_,
                   .group = group_.parameters.parameter(0).group,
                   .sharded = context_.sharding.optimizer};
  for (const BookedTensor& state : state_) part.state.push_back(state.tensor);
  const FlatLayout& layout = group_.parameters.layout();
  const auto segments = [&](const FlatRange& range) {
    std::vector<optim::Segment> result;
    for (const Piece& piece : layout.FindPieces(range)) {
      result.push_back({.parameter = first_parameter_ + piece.parameter,
                        .start = range.start + piece.range_start - range_.start,
                        .count = piece.count});
    }
    return result;
  };
  part.whole_numel = layout.padded_numel();
  for (int i = 0; i < layout.size(); ++i) {
    part.whole_parameters.push_back({.start = layout.parameter(i).start,
                                     .shape = group_.parameters.parameter(i).tensor.sizes().vec()});
  }
  part.segments = segments(range_);
  part.owned = segments(layout.shard(context_.world->rank()));
  return part;
}

void OptimizerShard::Publish() {
  if (context_.sharding.optimizer) group_.parameters.Publish();
}

void OptimizerShard::PublishWeights() {
  if (master_.defined()) target_.copy_(master_.tensor);
  Publish();
}

void OptimizerShard::MoveStateToHost() {
  for (BookedTensor& state : state_) MoveToHost(context_, state);
}

void OptimizerShard::MoveBack() {
  zero::MoveBack(context_, master_);
  for (BookedTensor& state : state_) zero::MoveBack(context_, state);
}

void OptimizerShard::AddShards(std::vector<checkpoint::TensorShard>* shards) const {
  checkpoint::Replica replica;
  if (!context_.sharding.optimizer) {
    replica = {.index = context_.world->rank(), .count = context_.world->size()};
  }
  AddShardsOf(group_.parameters, {weights(), range_, "", replica}, shards);
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const std::string suffix = "/" + std::string(state_names_[i]);
    AddShardsOf(group_.parameters, {state_[i].tensor, range_, suffix, replica}, shards);
  }
}

void AddShardsOf(const FlatParameters& parameters, const CheckpointedRange& held,
                 std::vector<checkpoint::TensorShard>* shards) {
  for (const Piece& piece : parameters.layout().FindPieces(held.range)) {
    const NamedParameter& parameter = parameters.parameter(piece.parameter);
    shards->push_back({.name = parameter.name + held.suffix,
                       .global_shape = parameter.tensor.sizes().vec(),
                       .flat_start = piece.parameter_start,
                       .data = held.flat.narrow(0, piece.range_start, piece.count),
                       .replica = held.replica});
  }
}

}  // namespace ds::zero
