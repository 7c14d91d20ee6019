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

using PartUse = OptimizerShard::PartUse;

std::vector<bool> ListKeptBuckets(const ShardedModel& model) {
  std::vector<std::int64_t> numels;
  ForEachTrainableBucket(model, [&](const Bucket& bucket, std::int64_t) {
    numels.push_back(bucket.parameters().layout().shard_numel());
  });
  return ListKept(numels, model.context().tiers.optimizer_share);
}

// The turns of all shards, in order, and what goes on beside a part that is there (Tiers).
class Turns {
 public:
  Turns(const std::vector<std::unique_ptr<OptimizerShard>>& shards, const Tiers& tiers)
      : tiers_(tiers) {
    for (const auto& shard : shards) {
      for (const OptimizerShard::Turn& turn : shard->ListTurns(tiers.most_elements)) {
        turns_.emplace_back(shard.get(), turn);
      }
    }
  }

  // Calls visit(part) for one after the other, and leave(shard) behind the last one of each.
  template <typename Leave>
  void Take(PartUse use, const optim::VisitPart& visit, Leave leave) const {
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const auto& [shard, turn] = turns_[i];
      const bool is_last = i + 1 == turns_.size();
      shard->Prefetch(turn);
      {
        std::vector<Lease> leases;
        const optim::Part part = shard->MakePart(turn, use, &leases);
        if (tiers_.reads_ahead && !is_last) turns_[i + 1].first->Prefetch(turns_[i + 1].second);
        visit(part);
      }
      shard->Stow(turn);
      if (!tiers_.writes_behind) shard->Settle();
      if (is_last || turns_[i + 1].first != shard) leave(*shard);
    }
  }

 private:
  const Tiers& tiers_;
  std::vector<std::pair<OptimizerShard*, OptimizerShard::Turn>> turns_;
};

}  // namespace

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config)
    : model_(model), optimizer_(optim::MakeOptimizer(config)) {
  const Tiers& tiers = model.context().tiers;
  const std::vector<bool> kept = ListKeptBuckets(model);
  ForEachTrainableBucket(model, [&](Bucket& bucket, std::int64_t first) {
    const bool stays = kept[shards_.size()];
    bucket.gradients().set_rest(stays ? Rest::kHere : tiers.gradients);
    shards_.push_back(std::make_unique<OptimizerShard>(model.context(), bucket, *optimizer_, first,
                                                       stays ? Rest::kHere : tiers.optimizer));
    parameter_count_ = first + bucket.parameters().layout().size();
    takes_all_at_once_ =
        optimizer_->reach(bucket.parameters().parameter(0).group) == optim::Reach::kModel;
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
  if (takes_all_at_once_) {
    StepAtOnce(update);
  } else {
    StepInTurns(update);
  }
  AwaitAndStow();
}

void ShardedOptimizer::AwaitAndStow() {
  model_.AwaitParameters();
  for (const auto& shard : shards_) shard->Stow();
}

optim::RankParts ShardedOptimizer::DescribeRank() const {
  return {.parts = {},
          .parameter_count = parameter_count_,
          .groups = model_.context().groups,
          .ledger = model_.context().ledger};
}

void ShardedOptimizer::StepAtOnce(const optim::Update& update) {
  optim::RankParts all = DescribeRank();
  std::vector<Lease> leases;
  std::vector<std::size_t> ends;  // by shard: of its parts in all.parts
  for (const auto& shard : shards_) {
    for (const OptimizerShard::Turn& turn : shard->ListTurns(kWhole)) {
      all.parts.push_back(shard->MakePart(turn, PartUse::kUpdate, &leases));
    }
    ends.push_back(all.parts.size());
  }
  optimizer_->Begin(update, all);
  for (std::size_t i = 0, part = 0; i < shards_.size(); ++i) {
    for (; part < ends[i]; ++part) optimizer_->Apply(update, all.parts[part]);
    shards_[i]->Publish();  // goes on under the next update
  }
}

void ShardedOptimizer::StepInTurns(const optim::Update& update) {
  const Turns turns(shards_, model_.context().tiers);
  optim::RankParts all = DescribeRank();
  all.for_each = [&](const optim::VisitPart& visit) {
    turns.Take(PartUse::kReview, visit, [](OptimizerShard& shard) { shard.Stow(); });
  };
  optimizer_->Begin(update, all);
  turns.Take(
      PartUse::kUpdate, [&](const optim::Part& part) { optimizer_->Apply(update, part); },
      [](OptimizerShard& shard) {
        shard.Publish();  // goes on under the next update
        shard.Stow();
      });
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
  AwaitAndStow();
}

}  // namespace ds::zero
