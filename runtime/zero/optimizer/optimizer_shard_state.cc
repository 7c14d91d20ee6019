// The part of OptimizerShard that serves checkpoints and moves to the host.

#include <string>

#include "runtime/config/model_state.h"
#include "runtime/zero/optimizer/optimizer_shard.h"
#include "runtime/zero/storage/quantized_source.h"
#include "runtime/zero/storage/store_source.h"

namespace ds::zero {

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
                                                    : context.WholeCopyAxes(parameter.placement))});
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
  if (!master_.rests_away()) master_.Prefetch();
  for (RangeState& state : states_) {
    for (Store& store : state.stores) {
      if (!store.rests_away()) store.Prefetch();
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
                                : context_.WholeCopyAxes(parameter.placement);
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
    add({parameters.store(), parameters.kept_range(), own_, "", sharded});
  }
  for (RangeState& state : states_) {
    for (std::size_t i = 0; i < state.stores.size(); ++i) {
      add({state.stores[i], state.stored, state.range, "/" + std::string(state.names[i]), sharded});
    }
    AddScales(state, shards);
  }
}

}  // namespace ds::zero
