#include "runtime/zero/sharded_optimizer.h"

#include <c10/core/GradMode.h>

#include <cmath>

#include "runtime/optim/factory/make_optimizer.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/zero/groups.h"

namespace ds::zero {

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config)
    : model_(model), optimizer_(optim::MakeOptimizer(config)) {
  ForEachTrainableGroup(model, [&](Group& group, std::int64_t first) {
    shards_.push_back(std::make_unique<OptimizerShard>(model.context(), group, *optimizer_, first));
    parameter_count_ = first + group.parameters.layout().size();
  });
}

void ShardedOptimizer::ReduceGradients(std::int64_t step) {
  own_gradients_ = optimizer_->WantsOwnGradients(step);
  ForEachTrainableGroup(model_, [&](Group& group, std::int64_t) {
    if (own_gradients_) {
      group.gradients->KeepOwnGradients();
    } else {
      group.gradients->Reduce();
    }
  });
}

double ShardedOptimizer::SumOfOwnSquares() const {
  double sum = 0.0;
  ForEachTrainableGroup(model_, [&](Group& group, std::int64_t) {
    sum += optim::SumOfSquares(group.gradients->for_optimizer());
  });
  return sum;
}

double ShardedOptimizer::NormToClip(double norm) const {
  return own_gradients_ ? std::sqrt(SumOfOwnSquares()) : norm;
}

double ShardedOptimizer::SumOfSquaresOfShard() const {
  if (own_gradients_) return SumOfOwnSquares() / model_.context().world->size();
  double sum = 0.0;
  ForEachTrainableGroup(model_, [&](Group& group, std::int64_t) {
    sum += optim::SumOfSquares(group.gradients->shard());
  });
  return sum;
}

void ShardedOptimizer::Step(const optim::Update& update) {
  optim::RankParts all{.parameter_count = parameter_count_,
                       .world = model_.context().world,
                       .ledger = model_.context().ledger};
  for (const auto& shard : shards_) all.parts.push_back(shard->MakePart());
  optimizer_->Begin(update, all);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    optimizer_->Apply(update, all.parts[i]);
    shards_[i]->Publish();
  }
}

void ShardedOptimizer::ClearGradients() {
  ForEachTrainableGroup(model_, [](Group& group, std::int64_t) { group.gradients->Clear(); });
}

void ShardedOptimizer::AddShards(std::vector<checkpoint::TensorShard>* shards) const {
  for (const auto& shard : shards_) shard->AddShards(shards);
  const Context& context = model_.context();
  ForEachGroup(model_, [&](Group& group) {
    if (group.trainable()) return;
    const FlatParameters& frozen = group.parameters;
    if (context.sharding.parameters) {
      const FlatRange own = frozen.layout().shard(context.world->rank());
      AddShardsOf(frozen, {frozen.shard(), own, "", {}}, shards);
    } else {
      AddShardsOf(frozen,
                  {frozen.full(),
                   frozen.layout().whole(),
                   "",
                   {.index = context.world->rank(), .count = context.world->size()}},
                  shards);
    }
  });
}

Status ShardedOptimizer::LoadState(const nlohmann::json& state) {
  optimizer_->StateWasLoaded();
  DS_RETURN_IF_ERROR(optimizer_->LoadState(state, parameter_count_));
  PublishWeights();
  return OkStatus();
}

void ShardedOptimizer::MoveToHost(StateKind kind) {
  switch (kind) {
    case StateKind::kOptimStates:
      for (const auto& shard : shards_) shard->MoveStateToHost();
      return;
    case StateKind::kHpParams:
      for (const auto& shard : shards_) shard->MoveMastersToHost();
      return;
    case StateKind::kLpParams:
      ForEachGroup(model_, [](Group& group) { group.parameters.MoveToHost(); });
      return;
    case StateKind::kLpGrads:
      return;
    case StateKind::kContiguousGradBuffer:
      model_.FreeBuffers();
      return;
  }
}

void ShardedOptimizer::MoveBack() {
  ForEachGroup(model_, [](Group& group) { group.parameters.MoveBack(); });
  for (const auto& shard : shards_) shard->MoveBack();
}

void ShardedOptimizer::PublishWeights() {
  for (const auto& shard : shards_) shard->PublishWeights();
}

}  // namespace ds::zero
