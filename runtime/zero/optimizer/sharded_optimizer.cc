#include "runtime/zero/optimizer/sharded_optimizer.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/device/copy_streams.h"
#include "runtime/offload/file_tier.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/optim/optimizer.h"
#include "runtime/zero/optimizer/optimizer_shard.h"
#include "runtime/zero/optimizer/update_thread.h"
#include "runtime/zero/optimizer/zenflow.h"

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

// Allocates space in the files for a step's gradients and frees it again. On file systems that
// allocate in advance, a drive without enough space thus fails before the first step.
void TryRoomForGradients(const ShardedModel& model, const std::vector<bool>& kept) {
  const Context& context = model.context();
  const Tiers& tiers = context.tiers;
  const bool updates_first = tiers.updates_in_backward && !tiers.takes_back;
  if (tiers.gradients != Rest::kFile || updates_first) return;
  std::vector<offload::Extent> room;
  std::size_t index = 0;
  ForEachTrainableBucket(model, [&](const Bucket& bucket, std::int64_t) {
    const std::int64_t bytes = bucket.parameters().layout().shard_numel() *
                               static_cast<std::int64_t>(c10::elementSize(context.dtypes.gradient));
    if (kept[index++] || bytes < tiers.smallest_bytes) return;
    StatusOr<offload::Extent> extent = tiers.optimizer_files->Allocate(bytes);
    TORCH_CHECK(extent.ok(), extent.status().message());
    room.push_back(*std::move(extent));
  });
}

// Returns the sum of squares of this rank's shard of a bucket's mean; elements that several ranks
// hold count once. Tensors on a device other than the CPU are added to `away` instead.
double SumOfSquares(const Bucket& bucket, const at::Tensor& shard,
                    optim::SquaresOfParts* away = nullptr) {
  const Context& context = bucket.context();
  const int member = context.groups.shards->rank();
  const FlatLayout& layout = bucket.parameters().layout();
  double sum = 0.0;
  for (const TrainingRange& range : bucket.ranges()) {
    const FlatRange own = layout.shard_of(range.range, member);
    const at::Tensor values = shard.narrow(0, own.start - layout.shard(member).start, own.count);
    const int copies = context.CountShardCopies(bucket.member_of(range).placement);
    if (away != nullptr && !values.is_cpu()) {
      away->Add(values, 1.0 / copies);
    } else {
      sum += optim::SumOfSquares(values) / copies;
    }
  }
  return sum;
}

// The sub-groups of shards, in order, with transfers overlapped as Tiers says.
class Turns {
 public:
  explicit Turns(const Tiers& tiers) : tiers_(tiers) {}

  void Add(OptimizerShard& shard) {
    for (const OptimizerShard::Turn& turn : shard.ListTurns(tiers_.most_elements)) {
      turns_.emplace_back(&shard, turn);
    }
  }

  // Calls visit(part) for each sub-group in order, and leave(shard) after the last one of each
  // shard.
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
        if (use != PartUse::kReview) shard->KeepState(turn, part);
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

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config,
                                   const std::optional<config::ZenFlowConfig>& zenflow)
    : model_(model), optimizer_(optim::MakeOptimizer(config)) {
  const Tiers& tiers = model.context().tiers;
  const std::vector<bool> kept = ListKeptBuckets(model);
  ForEachTrainableBucket(model, [&](Bucket& bucket, std::int64_t first) {
    const bool stays = kept[shards_.size()];
    bucket.gradients().set_rest(
        stays ? Rest::kHere : tiers.gradients,
        [&bucket](const at::Tensor& shard) { return SumOfSquares(bucket, shard); });
    shards_.push_back(std::make_unique<OptimizerShard>(bucket.context(), bucket, *optimizer_, first,
                                                       stays ? Rest::kHere : tiers.optimizer));
    parameter_count_ = first + bucket.parameters().layout().size();
    takes_all_at_once_ =
        optimizer_->reach(bucket.parameters().parameter(0).group) == optim::Reach::kModel;
  });
  squares_.resize(shards_.size());
  TryRoomForGradients(model, kept);
  if (zenflow) {
    zenflow_ = std::make_unique<ZenFlow>(model.context(), *zenflow, *optimizer_);
    for (const auto& shard : shards_) zenflow_->Add(*shard);
    zenflow_->WeightsWereWritten();
  }
  if (!tiers.updates_in_backward) return;
  first_of_unit_ = {0};
  for (const auto& unit : model.units()) {
    const auto trained = std::count_if(unit->buckets().begin(), unit->buckets().end(),
                                       [](const auto& bucket) { return bucket->trainable(); });
    first_of_unit_.push_back(first_of_unit_.back() + static_cast<std::size_t>(trained));
  }
  model.SetUpdates({.prepare = [this](int unit) { PrepareUnit(unit); },
                    .update = [this](int unit) { UpdateUnit(unit); },
                    .end = [this] { EndUpdateBeside(); }});
}

ShardedOptimizer::~ShardedOptimizer() {
  if (beside_.valid()) beside_.wait();
}

// Each stage that holds a bucket has the gradients of its own blocks only.
void ShardedOptimizer::AddUpOverStages() {
  const Context& context = model_.context();
  const int rank = context.groups.all->rank();
  ForEachTrainableBucket(model_, [&](Bucket& bucket, std::int64_t) {
    const NamedParameter& first = bucket.parameters().parameter(0);
    const std::vector<int>& stages = first.placement.stages;
    if (stages.empty()) return;
    std::string name = "stages";
    std::vector<int> ranks;
    topology::Coordinates place = context.mesh.CoordinatesOf(rank);
    for (const int stage : stages) {
      name += " " + std::to_string(stage);
      place[static_cast<std::size_t>(topology::Axis::kPipeline)] = stage;
      ranks.push_back(context.mesh.RankAt(place));
    }
    FlatGradients& gradients = bucket.gradients();
    const Lease mean = gradients.for_optimizer(gradients.optimizer_range(), Access::kUpdate);
    context.groups.all->Group(name, ranks)
        .AllReduce(mean.tensor(), comm::ReduceOp::kSum, first.name);
  });
}

void ShardedOptimizer::ReduceGradients(std::int64_t step) {
  EndUpdateBeside();  // of a failed pass
  own_gradients_ = optimizer_->WantsOwnGradients(step);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (squares_[i]) continue;  // already updated
    FlatGradients& gradients = shards_[i]->bucket().gradients();
    if (own_gradients_) {
      gradients.KeepOwnGradients();
    } else {
      gradients.Reduce();
    }
  }
  AddUpOverStages();
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

double Squares::Read() const {
  return on_device.defined() ? on_host + on_device.item<double>() : on_host;
}

void Squares::Add(const Squares& more) {
  on_host += more.on_host;
  if (!more.on_device.defined()) return;
  on_device = on_device.defined() ? on_device + more.on_device : more.on_device;
}

Squares ShardedOptimizer::MeasureShard() const {
  if (own_gradients_) return {SumOfOwnSquares() / model_.context().groups.gradients->size()};
  optim::SquaresOfParts away;
  Squares sum;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    sum.Add(squares_[i] ? *squares_[i] : Squares{SumOfSquaresOf(*shards_[i], &away)});
  }
  sum.Add({.on_device = away.Sum()});
  return sum;
}

// Windows of files are opened for updates that write them fully, so a skipped update cannot use
// them.
bool ShardedOptimizer::takes_decision() const {
  const Context& context = model_.context();
  const Tiers& tiers = context.tiers;
  const bool in_files = tiers.parameters == Rest::kFile || tiers.gradients == Rest::kFile ||
                        tiers.optimizer == Rest::kFile;
  return optimizer_->takes_decision() && !own_gradients_ && zenflow_ == nullptr && !in_files &&
         !tiers.updates_in_backward && !context.blockwise_state;
}

// The sum for a mean in a file is already known, unless the mean has been written since.
double ShardedOptimizer::SumOfSquaresOf(const OptimizerShard& shard,
                                        optim::SquaresOfParts* away) const {
  FlatGradients& gradients = shard.bucket().gradients();
  if (const std::optional<double> measured = gradients.measured()) return *measured;
  const double sum = SumOfSquares(shard.bucket(), gradients.shard().tensor(), away);
  const bool stays = shard.bucket().context().tiers.gradients == Rest::kHere;
  if (!stays && away != nullptr) away->Measure();  // before its tensors are offloaded
  gradients.Stow(gradients.optimizer_range());
  return sum;
}

void ShardedOptimizer::Step(const optim::Update& update) {
  model_.ReleaseAll();  // a forward pass without backward left values that go stale
  if (zenflow_) {
    zenflow_->Step(update);
  } else if (takes_all_at_once_) {
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
  const PartUse use = update.decision.defined() ? PartUse::kDecided : PartUse::kUpdate;
  optim::RankParts all = DescribeRank();
  std::vector<Lease> leases;
  std::vector<std::size_t> ends;  // by shard: end of its parts in all.parts
  for (const auto& shard : shards_) {
    for (const OptimizerShard::Turn& turn : shard->ListTurns(kWhole)) {
      all.parts.push_back(shard->MakePart(turn, use, &leases));
    }
    ends.push_back(all.parts.size());
  }
  optimizer_->Begin(update, all);
  for (std::size_t i = 0, part = 0; i < shards_.size(); ++i) {
    for (; part < ends[i]; ++part) optimizer_->Apply(update, all.parts[part]);
    shards_[i]->Publish();  // overlaps with the next update
  }
}

void ShardedOptimizer::StepInTurns(const optim::Update& update) {
  const PartUse use = update.decision.defined() ? PartUse::kDecided : PartUse::kUpdate;
  Turns turns(model_.context().tiers), again(model_.context().tiers);
  const bool was_right = !update_ || update_->gradient_scale == update.gradient_scale;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (!squares_[i]) turns.Add(*shards_[i]);
    if (squares_[i] && !was_right) again.Add(*shards_[i]);
  }
  optim::RankParts all = DescribeRank();
  all.for_each = [&](const optim::VisitPart& visit) {
    turns.Take(PartUse::kReview, visit, [](OptimizerShard& shard) { shard.Stow(); });
  };
  optimizer_->Begin(update, all);
  const auto apply = [&](const optim::Part& part) { optimizer_->Apply(update, part); };
  const auto leave = [](OptimizerShard& shard) {
    shard.Publish();  // overlaps with the next update
    shard.Stow();
  };
  if (!was_right) AwaitAndStow();  // the values being published are wrong
  again.Take(PartUse::kRetry, apply, leave);
  turns.Take(use, apply, leave);
}

bool ShardedOptimizer::TakeBack() {
  EndUpdateBeside();  // of a failed pass
  if (!has_updated()) return true;
  if (!model_.context().tiers.takes_back) return false;
  model_.ReleaseAll();
  AwaitAndStow();  // the values being published are wrong
  Turns turns(model_.context().tiers);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (squares_[i]) turns.Add(*shards_[i]);
  }
  turns.Take(
      PartUse::kRetry, [](const optim::Part&) {},
      [](OptimizerShard& shard) { shard.PublishWeights(); });
  AwaitAndStow();
  squares_.assign(squares_.size(), std::nullopt);
  return true;
}

void ShardedOptimizer::BeginUpdate(const optim::Update& update) {
  update_ = update;
  optimizer_->Begin(update, DescribeRank());
}

bool ShardedOptimizer::has_updated() const {
  return std::any_of(squares_.begin(), squares_.end(), [](const auto& each) { return !!each; });
}

std::span<const std::unique_ptr<OptimizerShard>> ShardedOptimizer::ShardsOf(int unit) const {
  const std::size_t first = first_of_unit_.at(static_cast<std::size_t>(unit));
  const std::size_t end = first_of_unit_.at(static_cast<std::size_t>(unit) + 1);
  return std::span(shards_).subspan(first, end - first);
}

void ShardedOptimizer::PrepareUnit(int unit) {
  const Tiers& tiers = model_.context().tiers;
  const auto shards = ShardsOf(unit);
  if (!tiers.reads_ahead || shards.empty()) return;
  shards[0]->PrefetchState(shards[0]->ListTurns(tiers.most_elements)[0]);
}

void ShardedOptimizer::UpdateUnit(int unit) {
  DS_CHECK(update_.has_value());
  EndUpdateBeside();
  const auto shards = ShardsOf(unit);
  const auto turns = std::make_shared<Turns>(model_.context().tiers);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::optional<Squares>& squares = squares_[first_of_unit_[static_cast<std::size_t>(unit)] + i];
    TORCH_CHECK(!squares,
                "a backward pass through several forward passes gives a block its gradients more "
                "than once, and super_offload has updated it by the first: call backward for each");
    FlatGradients& gradients = shards[i]->bucket().gradients();
    gradients.Reduce();
    optim::SquaresOfParts away;
    squares = {.on_host = SumOfSquaresOf(*shards[i], &away)};
    squares->on_device = away.Sum();
    turns->Add(*shards[i]);
  }
  const Tiers& tiers = model_.context().tiers;
  const PartUse use = tiers.takes_back ? PartUse::kTry : PartUse::kUpdate;
  const auto apply = [this](const optim::Part& part) { optimizer_->Apply(*update_, part); };
  if (!tiers.updates_beside) {
    turns->Take(use, apply, [this](OptimizerShard& shard) { LeaveUpdated(shard); });
    return;
  }
  for (const auto& shard : shards) lent_.push_back(shard.get());
  beside_ = tiers.update_thread->Run(
      [turns, use, apply] { turns->Take(use, apply, [](const OptimizerShard&) {}); });
}

void ShardedOptimizer::LeaveUpdated(OptimizerShard& shard) {
  if (!model_.context().tiers.takes_back) shard.bucket().gradients().DropMean();
  shard.Publish();  // overlaps with the backward pass
  shard.Stow();
}

void ShardedOptimizer::EndUpdateBeside() {
  if (!beside_.valid()) return;
  const std::vector<OptimizerShard*> shards = std::exchange(lent_, {});
  beside_.get();
  for (OptimizerShard* const shard : shards) LeaveUpdated(*shard);
}

void ShardedOptimizer::ClearGradients() {
  EndUpdateBeside();  // of a failed pass
  ForEachTrainableBucket(model_, [](Bucket& bucket, std::int64_t) { bucket.gradients().Clear(); });
  squares_.assign(squares_.size(), std::nullopt);
  update_.reset();
}

// Checkpoints and moves to the host.

void ShardedOptimizer::AddShards(std::vector<checkpoint::TensorShard>* shards) const {
  if (zenflow_) zenflow_->WriteBack();
  for (const auto& shard : shards_) shard->AddShards(shards);
  if (zenflow_) zenflow_->AddShards(shards);
  ForEachBucket(model_, [&](Bucket& bucket) {
    if (bucket.trainable()) return;
    const Context& context = bucket.context();
    FlatParameters& frozen = bucket.parameters();
    const FlatRange kept = frozen.kept_range();
    CheckpointedRange held{frozen.store(), kept, kept, "", context.sharding.parameters};
    if (frozen.keeps_quantized()) held.quantized_from = frozen.full().scalar_type();
    AddShardsOf(context, frozen, held, shards);
  });
}

std::string_view ShardedOptimizer::optimizer_name() const {
  if (zenflow_) return ZenFlow::kName;
  return model_.context().blockwise_state ? "Adam in 8 bits" : optimizer_->name();
}

nlohmann::json ShardedOptimizer::State() const {
  return zenflow_ ? zenflow_->State() : optimizer_->State();
}

Status ShardedOptimizer::CheckState(const nlohmann::json& state) const {
  return zenflow_ ? zenflow_->CheckState(state) : OkStatus();
}

void ShardedOptimizer::ExpectState(const nlohmann::json& state) {
  if (zenflow_) zenflow_->ExpectState(state);
}

void ShardedOptimizer::Settle() {
  if (!zenflow_) return;
  zenflow_->Settle();
  AwaitAndStow();
}

Status ShardedOptimizer::LoadState(const nlohmann::json& state) {
  optimizer_->StateWasLoaded();
  if (!zenflow_) DS_RETURN_IF_ERROR(optimizer_->LoadState(state, parameter_count_));
  PublishWeights();
  return OkStatus();
}

void ShardedOptimizer::MoveToHost(StateKind kind) {
  Settle();
  if (zenflow_) zenflow_->MoveToHost(kind);
  switch (kind) {
    case StateKind::kOptimStates:
      for (const auto& shard : shards_) shard->MoveStateToHost();
      break;
    case StateKind::kHpParams:
      for (const auto& shard : shards_) shard->MoveMastersToHost();
      break;
    case StateKind::kLpParams:
      model_.EvictAll();
      ForEachBucket(model_, [](Bucket& bucket) { bucket.parameters().MoveToHost(); });
      break;
    case StateKind::kLpGrads:
      break;
    case StateKind::kContiguousGradBuffer:
      model_.FreeBuffers();
      break;
  }
  // Tensors changed by the last update occupy the device until they are offloaded.
  if (model_.context().copies) model_.context().copies->FreeAll();
}

void ShardedOptimizer::MoveBack() {
  ForEachBucket(model_, [](Bucket& bucket) { bucket.parameters().MoveBack(); });
  for (const auto& shard : shards_) shard->MoveBack();
  if (zenflow_) zenflow_->MoveBack();
}

void ShardedOptimizer::PublishWeights() {
  model_.EvictAll();  // frozen values may have been written, too
  for (const auto& shard : shards_) shard->PublishWeights();
  if (zenflow_) zenflow_->WeightsWereWritten();
  ForEachBucket(model_, [](Bucket& bucket) {
    const bool was_cut = bucket.context().sharding.parameters;
    if (was_cut && !bucket.trainable()) bucket.parameters().Publish();
  });
  AwaitAndStow();
}

}  // namespace ds::zero
