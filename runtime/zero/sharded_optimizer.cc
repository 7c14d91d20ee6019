#include "runtime/zero/sharded_optimizer.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <span>
#include <string>

#include "runtime/optim/factory/make_optimizer.h"
#include "runtime/optim/kernels/flat_update.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/zero/groups.h"
#include "runtime/zero/store_source.h"

namespace ds::zero {

using device::MemoryUse;

namespace {

// A range of a group's layout as a checkpoint holds it, under the names `<parameter><suffix>`.
struct CheckpointedRange {
  Store& store;
  FlatRange stored;  // of the layout
  FlatRange range;   // of that
  std::string suffix;
  bool is_shard = false;  // this rank's; otherwise the whole buffer
};

// Appends the range as shards of the group's parameters.
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

}  // namespace

// The optimizer's state for what this rank updates of one group of parameters.
class OptimizerShard {
 public:
  // State starts at zero, master weights at the parameters' values. `first_parameter` is the
  // ordinal of the group's first parameter among the trainable ones. Requires a trainable group; it
  // and the optimizer outlive this.
  OptimizerShard(const Context& context, Group& group, const optim::Optimizer& optimizer,
                 std::int64_t first_parameter);

  // Makes the part that the optimizer updates, which is there as long as `leases` are. Requires
  // reduced gradients.
  optim::Part MakePart(std::vector<Lease>* leases);
  // Brings the updated parameters to all ranks. Collective.
  void Publish();
  // Takes this rank's part of them to where it rests. Requires that no part of MakePart lives.
  void Stow() { group_.parameters.Stow(); }

  // The weights that are updated and the optimizer's state of this rank, parameter by parameter.
  void AddShards(std::vector<checkpoint::TensorShard>* shards);
  // After those weights have been written from outside: makes the parameters of all ranks
  // follow. Collective.
  void PublishWeights();

  // Between steps: goes to host memory until MoveBack.
  void MoveStateToHost();
  void MoveMastersToHost() { master_.Release(); }
  void MoveBack();

 private:
  // The weights that the optimizer updates: its own, or the parameters.
  Lease AcquireWeights() { return master_.defined() ? master_.Acquire() : AcquireTarget(); }
  // What of the parameters is updated.
  Lease AcquireTarget() {
    FlatParameters& parameters = group_.parameters;
    return context_.sharding.optimizer ? parameters.AcquireShard() : Lease(parameters.full());
  }

  const Context& context_;
  Group& group_;
  const std::int64_t first_parameter_;
  FlatRange range_;  // what this rank updates
  optim::FlatUpdate launch_ = nullptr;
  Store master_;
  std::span<const std::string_view> state_names_;
  std::vector<Store> state_;  // as they name it
};

OptimizerShard::OptimizerShard(const Context& context, Group& group,
                               const optim::Optimizer& optimizer, std::int64_t first_parameter)
    : context_(context), group_(group), first_parameter_(first_parameter) {
  const FlatParameters& parameters = group.parameters;
  state_names_ = optimizer.state_names(parameters.parameter(0).group);
  const bool sharded = context.sharding.optimizer;
  range_ = sharded ? parameters.layout().shard(context.groups.shards->rank())
                   : parameters.layout().whole();
  const auto booked = [&](c10::ScalarType dtype, MemoryUse use) {
    return Store(context, {range_.count, dtype, use});
  };
  launch_ = optim::FindFlatUpdate(context.device);
  if (context.dtypes.has_master_weights()) {
    master_ = booked(context.dtypes.master, MemoryUse::kMasterWeights);
    master_.Acquire().tensor().copy_(AcquireTarget().tensor());
    group.parameters.Stow();
  }
  for (std::size_t i = 0; i < state_names_.size(); ++i) {
    state_.push_back(booked(context.dtypes.state, MemoryUse::kOptimizerState));
    state_.back().Acquire().tensor().zero_();
  }
}

optim::Part OptimizerShard::MakePart(std::vector<Lease>* leases) {
  const auto hold = [&](Lease lease) { return leases->emplace_back(std::move(lease)).tensor(); };
  optim::Part part{.parameter = hold(AcquireWeights()),
                   .gradient = hold(group_.gradients->for_optimizer()),
                   .published = master_.defined() ? hold(AcquireTarget()) : at::Tensor(),
                   .launch = launch_,
                   .group = group_.parameters.parameter(0).group,
                   .sharded = context_.sharding.optimizer};
  for (Store& state : state_) part.state.push_back(hold(state.Acquire()));
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
  part.owned = segments(layout.shard(context_.groups.shards->rank()));
  return part;
}

void OptimizerShard::Publish() {
  if (context_.sharding.optimizer) group_.parameters.Publish();
}

void OptimizerShard::PublishWeights() {
  if (master_.defined()) AcquireTarget().tensor().copy_(master_.Acquire().tensor());
  Publish();
  Stow();
}

void OptimizerShard::MoveStateToHost() {
  for (Store& state : state_) state.Release();
}

void OptimizerShard::MoveBack() {
  master_.Prefetch();
  for (Store& state : state_) state.Prefetch();
}

void OptimizerShard::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  const bool sharded = context_.sharding.optimizer;
  FlatParameters& parameters = group_.parameters;
  const auto add = [&](Store& store, const FlatRange& stored, const std::string& suffix) {
    AddShardsOf(context_, parameters, {store, stored, range_, suffix, sharded}, shards);
  };
  if (master_.defined()) {
    add(master_, range_, "");
  } else {
    add(parameters.store(), parameters.kept_range(), "");
  }
  for (std::size_t i = 0; i < state_.size(); ++i) {
    add(state_[i], range_, "/" + std::string(state_names_[i]));
  }
}

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config)
    : model_(model), optimizer_(optim::MakeOptimizer(config)) {
  ForEachTrainableGroup(model, [&](Group& group, std::int64_t first) {
    shards_.push_back(std::make_unique<OptimizerShard>(model.context(), group, *optimizer_, first));
    parameter_count_ = first + group.parameters.layout().size();
  });
}

ShardedOptimizer::~ShardedOptimizer() = default;

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
    sum += optim::SumOfSquares(group.gradients->for_optimizer().tensor());
  });
  return sum;
}

double ShardedOptimizer::NormToClip(double norm) const {
  return own_gradients_ ? std::sqrt(SumOfOwnSquares()) : norm;
}

double ShardedOptimizer::SumOfSquaresOfShard() const {
  if (own_gradients_) return SumOfOwnSquares() / model_.context().groups.gradients->size();
  const Context& context = model_.context();
  double sum = 0.0;
  ForEachTrainableGroup(model_, [&](Group& group, std::int64_t) {
    const int copies = context.mesh.CountOver(context.ShardCopyAxes(group.placement()));
    sum += optim::SumOfSquares(group.gradients->shard().tensor()) / copies;
  });
  return sum;
}

void ShardedOptimizer::Step(const optim::Update& update) {
  model_.ReleaseAll();  // a forward pass without a backward has left what will be old
  optim::RankParts all{.parameter_count = parameter_count_,
                       .groups = model_.context().groups,
                       .ledger = model_.context().ledger};
  std::vector<Lease> leases;
  for (const auto& shard : shards_) all.parts.push_back(shard->MakePart(&leases));
  optimizer_->Begin(update, all);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    optimizer_->Apply(update, all.parts[i]);
    shards_[i]->Publish();
  }
  leases.clear();
  for (const auto& shard : shards_) shard->Stow();
}

void ShardedOptimizer::ClearGradients() {
  ForEachTrainableGroup(model_, [](Group& group, std::int64_t) { group.gradients->Clear(); });
}

void ShardedOptimizer::AddShards(std::vector<checkpoint::TensorShard>* shards) const {
  for (const auto& shard : shards_) shard->AddShards(shards);
  const Context& context = model_.context();
  ForEachGroup(model_, [&](Group& group) {
    if (group.trainable()) return;
    FlatParameters& frozen = group.parameters;
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
      model_.ReleaseAll();
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
  model_.ReleaseAll();  // as in Step
  for (const auto& shard : shards_) shard->PublishWeights();
}

}  // namespace ds::zero
