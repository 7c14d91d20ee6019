#include "runtime/zero/sharded_optimizer.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>

#include "runtime/optim/gradient_norm.h"
#include "runtime/precision/finite_check.h"
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

const std::string& NameOfParameter(const ShardedModel& model, std::int64_t ordinal) {
  const std::string* name = nullptr;
  ForEachTrainableGroup(model, [&](Group& group) {
    const int count = group.parameters.layout().size();
    if (ordinal >= 0 && ordinal < count) {
      name = &group.parameters.parameter(static_cast<int>(ordinal)).name;
    }
    ordinal -= count;
  });
  DS_CHECK(name != nullptr);
  return *name;
}

struct NonFinitePlace {
  double parameter = std::numeric_limits<double>::infinity();  // ordinal among trainable ones
  double element = 0.0;
  double value = 0.0;
};

NonFinitePlace FirstNonFiniteOfShard(const ShardedModel& model) {
  NonFinitePlace place;
  std::int64_t first = 0;  // ordinal of the group's first parameter
  const int rank = model.context().world->rank();
  ForEachTrainableGroup(model, [&](Group& group) {
    const FlatLayout& layout = group.parameters.layout();
    const at::Tensor shard = group.gradients->shard();
    for (const Piece& piece : layout.PiecesOf(layout.shard(rank))) {
      if (std::isfinite(place.parameter)) return;
      const auto values = shard.narrow(0, piece.range_start, piece.count);
      const auto found = precision::FirstNonFinite(values);
      if (!found) continue;
      place = {.parameter = static_cast<double>(first + piece.parameter),
               .element = static_cast<double>(piece.parameter_start + found->index),
               .value = values[found->index].item<double>()};
    }
    first += layout.size();
  });
  return place;
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

std::optional<std::string> ShardedOptimizer::FindNonFiniteGradient() const {
  const NonFinitePlace mine = FirstNonFiniteOfShard(model_);
  const auto places = GatherNumbers(model_.context(), {mine.parameter, mine.element, mine.value});
  const auto& first = *std::min_element(places.begin(), places.end());
  if (!std::isfinite(first[0])) return std::nullopt;
  const std::string kind = std::isnan(first[2]) ? "NaN" : first[2] > 0 ? "+Inf" : "-Inf";
  return NameOfParameter(model_, static_cast<std::int64_t>(first[0])) + " (" + kind +
         " at element " + std::to_string(static_cast<std::int64_t>(first[1])) + ")";
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
