#include "runtime/zero/optimizer_shard.h"

#include <c10/core/GradMode.h>

namespace ds::zero {

using device::MemoryUse;

OptimizerShard::OptimizerShard(const Context& context, Group& group)
    : context_(context), group_(group) {
  const FlatParameters& parameters = group.parameters;
  const bool sharded = context.sharding.optimizer;
  range_ = sharded ? parameters.layout().shard(context.world->rank()) : parameters.layout().whole();
  target_ = sharded ? parameters.shard() : parameters.full();
  const auto booked = [&](MemoryUse use) {
    return MakeBooked(context, {range_.count, c10::kFloat, use});
  };
  if (context.dtypes.has_master_weights()) {
    master_ = booked(MemoryUse::kMasterWeights);
    master_.tensor.copy_(target_);
  }
  exp_avg_ = booked(MemoryUse::kOptimizerState);
  exp_avg_.tensor.zero_();
  exp_avg_sq_ = booked(MemoryUse::kOptimizerState);
  exp_avg_sq_.tensor.zero_();
}

void OptimizerShard::Step(const config::OptimizerConfig& config, const optim::AdamStep& step) {
  optim::ApplyAdam(config, step,
                   {.parameter = weights(),
                    .gradient = group_.gradients->for_optimizer(),
                    .exp_avg = exp_avg_.tensor,
                    .exp_avg_sq = exp_avg_sq_.tensor,
                    .published = master_.defined() ? target_ : at::Tensor()});
  if (context_.sharding.optimizer) group_.parameters.Publish();
}

void OptimizerShard::PublishWeights() {
  if (master_.defined()) target_.copy_(master_.tensor);
  if (context_.sharding.optimizer) group_.parameters.Publish();
}

void OptimizerShard::AddShards(std::vector<checkpoint::TensorShard>* shards) const {
  checkpoint::Replica replica;
  if (!context_.sharding.optimizer) {
    replica = {.index = context_.world->rank(), .count = context_.world->size()};
  }
  AddShardsOf(group_.parameters, {weights(), range_, "", replica}, shards);
  AddShardsOf(group_.parameters, {exp_avg_.tensor, range_, "/exp_avg", replica}, shards);
  AddShardsOf(group_.parameters, {exp_avg_sq_.tensor, range_, "/exp_avg_sq", replica}, shards);
}

void AddShardsOf(const FlatParameters& parameters, const FlatView& view,
                 std::vector<checkpoint::TensorShard>* shards) {
  for (const Piece& piece : parameters.layout().PiecesOf(view.range)) {
    const NamedParameter& parameter = parameters.parameter(piece.parameter);
    shards->push_back({.name = parameter.name + view.suffix,
                       .global_shape = parameter.tensor.sizes().vec(),
                       .flat_start = piece.parameter_start,
                       .data = view.flat.narrow(0, piece.range_start, piece.count),
                       .replica = view.replica});
  }
}

}  // namespace ds::zero
