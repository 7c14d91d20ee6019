#include "runtime/zero/sharded_optimizer.h"

#include <c10/core/GradMode.h>

#include "runtime/optim/gradient_norm.h"
#include "runtime/zero/rank_totals.h"

namespace ds::zero {
namespace {

template <typename Visit>
void ForEachGroup(const ShardedModel& model, Visit visit) {
  for (const auto& unit : model.units()) {
    for (const auto& group : unit->groups()) visit(*group);
  }
}

template <typename Visit>
void ForEachTrainableGroup(const ShardedModel& model, Visit visit) {
  ForEachGroup(model, [&](Group& group) {
    if (group.trainable()) visit(group);
  });
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config)
    : model_(model), optimizer_(optim::MakeOptimizer(config)) {
  ForEachTrainableGroup(model, [&](Group& group) {
    shards_.push_back(
        std::make_unique<OptimizerShard>(model.context(), group, *optimizer_, parameter_count_));
    parameter_count_ += group.parameters.layout().size();
  });
}

void ShardedOptimizer::ReduceGradients() {
  ForEachTrainableGroup(model_, [](Group& group) { group.gradients->Reduce(); });
}

double ShardedOptimizer::SumOfSquaresOfShard() const {
  double sum = 0.0;
  ForEachTrainableGroup(
      model_, [&](Group& group) { sum += optim::SumOfSquares(group.gradients->shard()); });
  return sum;
}

void ShardedOptimizer::Step(const optim::Update& update) {
  optim::RankParts all{.parameter_count = parameter_count_, .world = model_.context().world};
  for (const auto& shard : shards_) all.parts.push_back(shard->MakePart());
  optimizer_->Begin(update, all);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    optimizer_->Apply(update, all.parts[i]);
    shards_[i]->Publish();
  }
}

void ShardedOptimizer::ClearGradients() {
  ForEachTrainableGroup(model_, [](Group& group) { group.gradients->Clear(); });
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

void ShardedOptimizer::PublishWeights() {
  for (const auto& shard : shards_) shard->PublishWeights();
}

}  // namespace ds::zero
