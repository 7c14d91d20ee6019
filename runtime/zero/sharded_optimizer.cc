#include "runtime/zero/sharded_optimizer.h"

#include <cmath>
#include <limits>
#include <utility>

#include "runtime/optim/factory/make_optimizer.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/zero/buckets.h"
#include "runtime/zero/optimizer_shard.h"

namespace ds::zero {
namespace {

constexpr std::int64_t kWhole = std::numeric_limits<std::int64_t>::max();

}  // namespace

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config)
    : model_(model), optimizer_(optim::MakeOptimizer(config)) {
  ForEachTrainableBucket(model, [&](Bucket& bucket, std::int64_t first) {
    shards_.push_back(
        std::make_unique<OptimizerShard>(model.context(), bucket, *optimizer_, first));
    parameter_count_ = first + bucket.parameters().layout().size();
  });
}

ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::ReduceGradients(std::int64_t step) {
  own_gradients_ = optimizer_->WantsOwnGradients(step);
  ForEachTrainableBucket(model_, [&](Bucket& bucket, std::int64_t) {
    if (own_gradients_) {
      bucket.gradients().KeepOwnGradients();
    } else {
      bucket.gradients().Reduce();
    }
  });
}

double ShardedOptimizer::SumOfOwnSquares() const {
  double sum = 0.0;
  ForEachTrainableBucket(model_, [&](Bucket& bucket, std::int64_t) {
    sum += optim::SumOfSquares(
        bucket.gradients().for_optimizer(bucket.gradients().optimizer_range()).tensor());
  });
  return sum;
}

double ShardedOptimizer::NormToClip(double norm) const {
  return own_gradients_ ? std::sqrt(SumOfOwnSquares()) : norm;
}

double ShardedOptimizer::SumOfSquaresOfShard() const {
  if (own_gradients_) return SumOfOwnSquares() / model_.context().groups.gradients->size();
  const Context& context = model_.context();
  const int member = context.groups.shards->rank();
  double sum = 0.0;
  ForEachTrainableBucketAndNext(model_, [&](Bucket& bucket, Bucket* next) {
    const FlatRange shard_range = bucket.gradients().optimizer_range();
    bucket.gradients().Prefetch(shard_range);
    Lease shard = bucket.gradients().shard();
    if (next != nullptr) next->gradients().Prefetch(next->gradients().optimizer_range());
    const FlatLayout& layout = bucket.parameters().layout();
    for (const TrainingRange& range : bucket.ranges()) {
      const FlatRange own = layout.shard_of(range.range, member);
      const at::Tensor values =
          shard.tensor().narrow(0, own.start - layout.shard(member).start, own.count);
      sum += optim::SumOfSquares(values) /
             context.mesh.CountOver(context.ShardCopyAxes(bucket.member_of(range).placement));
    }
    shard = Lease();
    bucket.gradients().Stow(shard_range);
  });
  return sum;
}

void ShardedOptimizer::Step(const optim::Update& update) {
  model_.ReleaseAll();  // a forward pass without a backward has left what will be old
  if (optimizer_->is_elementwise()) {
    StepInTurns(update);
  } else {
    StepAtOnce(update);
  }
  model_.AwaitParameters();
  for (const auto& shard : shards_) shard->Stow();
}

void ShardedOptimizer::StepAtOnce(const optim::Update& update) {
  optim::RankParts all{.parameter_count = parameter_count_,
                       .groups = model_.context().groups,
                       .ledger = model_.context().ledger};
  std::vector<Lease> leases;
  std::vector<std::size_t> ends;  // by shard: of its parts in all.parts
  for (const auto& shard : shards_) {
    for (const OptimizerShard::Turn& turn : shard->ListTurns(kWhole)) {
      all.parts.push_back(shard->MakePart(turn, &leases));
    }
    ends.push_back(all.parts.size());
  }
  optimizer_->Begin(update, all);
  for (std::size_t i = 0, part = 0; i < shards_.size(); ++i) {
    for (; part < ends[i]; ++part) optimizer_->Apply(update, all.parts[part]);
    shards_[i]->Publish();  // goes on under the next update
  }
  model_.AwaitParameters();
}

void ShardedOptimizer::StepInTurns(const optim::Update& update) {
  const Tiers& tiers = model_.context().tiers;
  std::vector<std::pair<OptimizerShard*, OptimizerShard::Turn>> turns;
  for (const auto& shard : shards_) {
    for (const OptimizerShard::Turn& turn : shard->ListTurns(tiers.most_elements)) {
      turns.emplace_back(shard.get(), turn);
    }
  }
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const auto& [shard, turn] = turns[i];
    const bool is_last = i + 1 == turns.size();
    shard->Prefetch(turn);
    {
      std::vector<Lease> leases;
      const optim::Part part = shard->MakePart(turn, &leases);
      if (tiers.reads_ahead && !is_last) turns[i + 1].first->Prefetch(turns[i + 1].second);
      optimizer_->Apply(update, part);
    }
    shard->Stow(turn);
    if (!tiers.writes_behind) shard->Settle();
    if (!is_last && turns[i + 1].first == shard) continue;
    shard->Publish();  // goes on under the next update
    if (!shard->is_publishing()) shard->Stow();
  }
}

void ShardedOptimizer::ClearGradients() {
  ForEachTrainableBucket(model_, [](Bucket& bucket, std::int64_t) { bucket.gradients().Clear(); });
}

void ShardedOptimizer::AddShards(std::vector<checkpoint::TensorShard>* shards) const {
  for (const auto& shard : shards_) shard->AddShards(shards);
  const Context& context = model_.context();
  ForEachBucket(model_, [&](Bucket& bucket) {
    if (bucket.trainable()) return;
    FlatParameters& frozen = bucket.parameters();
    const FlatRange kept = frozen.kept_range();
    AddShardsOf(context, frozen, {frozen.store(), kept, kept, "", context.sharding.parameters},
                shards);
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
      model_.EvictAll();
      ForEachBucket(model_, [](Bucket& bucket) { bucket.parameters().MoveToHost(); });
      return;
    case StateKind::kLpGrads:
      return;
    case StateKind::kContiguousGradBuffer:
      model_.FreeBuffers();
      return;
  }
}

void ShardedOptimizer::MoveBack() {
  ForEachBucket(model_, [](Bucket& bucket) { bucket.parameters().MoveBack(); });
  for (const auto& shard : shards_) shard->MoveBack();
}

void ShardedOptimizer::PublishWeights() {
  model_.EvictAll();  // what is frozen may have been written as well
  for (const auto& shard : shards_) shard->PublishWeights();
  if (model_.context().sharding.parameters) {
    ForEachBucket(model_, [](Bucket& bucket) {
      if (!bucket.trainable()) bucket.parameters().Publish();
    });
  }
  model_.AwaitParameters();
}

}  // namespace ds::zero
