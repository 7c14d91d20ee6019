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

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

using SliceUse = OptimizerShard::SliceUse;

std::vector<bool> ListResidentBuckets(const ShardedModel& model) {
  std::vector<std::int64_t> numels;
  ForEachTrainableBucket(model, [&](const Bucket& bucket, std::int64_t) {
    numels.push_back(bucket.parameters().layout().shard_numel());
  });
  return ChooseResident(numels, model.context().tiers.optimizer_share);
}

// Allocates space in the files for a step's gradients and frees it again. On file systems that
// allocate in advance, a drive without enough space thus fails before the first step.
void ReserveGradientSpace(const ShardedModel& model, const std::vector<bool>& resident) {
  const Context& context = model.context();
  const Tiers& tiers = context.tiers;
  const bool updates_first = tiers.updates_in_backward && !tiers.rolls_back;
  if (tiers.gradients != StorageTier::kFile || updates_first) return;
  std::vector<offload::Extent> reserved;
  std::size_t index = 0;
  ForEachTrainableBucket(model, [&](const Bucket& bucket, std::int64_t) {
    const std::int64_t bytes = bucket.parameters().layout().shard_numel() *
                               static_cast<std::int64_t>(c10::elementSize(context.dtypes.gradient));
    if (resident[index++] || bytes < tiers.smallest_bytes) return;
    StatusOr<offload::Extent> extent = tiers.optimizer_files->Allocate(bytes);
    TORCH_CHECK(extent.ok(), extent.status().message());
    reserved.push_back(*std::move(extent));
  });
}

// Returns the sum of squares of this rank's shard of a bucket's mean; elements that several ranks
// hold count once. Tensors on a device other than the CPU are added to `device_sum` instead.
double SumOfSquares(const Bucket& bucket, const at::Tensor& shard,
                    optim::SquareSum* device_sum = nullptr) {
  const Context& context = bucket.context();
  const int member = context.groups.shards->rank();
  const FlatLayout& layout = bucket.parameters().layout();
  double sum = 0.0;
  for (const TrainingRange& range : bucket.ranges()) {
    const FlatRange own = layout.shard_of(range.range, member);
    const at::Tensor values = shard.narrow(0, own.start - layout.shard(member).start, own.count);
    const int copies = context.CountShardCopies(bucket.member_of(range).placement);
    if (device_sum != nullptr && !values.is_cpu()) {
      device_sum->Add(values, 1.0 / copies);
    } else {
      sum += optim::SumOfSquares(values) / copies;
    }
  }
  return sum;
}

// The sub-groups of shards, in order, with transfers overlapped as Tiers says.
class SubGroupQueue {
 public:
  explicit SubGroupQueue(const Tiers& tiers) : tiers_(tiers) {}

  void Add(OptimizerShard& shard) {
    for (const OptimizerShard::SubGroup& sub_group : shard.ListSubGroups(tiers_.most_elements)) {
      sub_groups_.emplace_back(&shard, sub_group);
    }
  }

  // Calls visit(part) for each sub-group in order, and leave(shard) after the last one of each
  // shard.
  template <typename Leave>
  void Take(SliceUse use, const optim::VisitSlice& visit, Leave leave) const {
    for (std::size_t i = 0; i < sub_groups_.size(); ++i) {
      const auto& [shard, sub_group] = sub_groups_[i];
      const bool is_last = i + 1 == sub_groups_.size();
      shard->Prefetch(sub_group);
      {
        std::vector<Lease> leases;
        const optim::OptimizerSlice slice = shard->MakeSlice(sub_group, use, &leases);
        if (tiers_.reads_ahead && !is_last)
          sub_groups_[i + 1].first->Prefetch(sub_groups_[i + 1].second);
        visit(slice);
        if (use != SliceUse::kReview) shard->KeepState(sub_group, slice);
      }
      shard->Offload(sub_group);
      if (!tiers_.writes_behind) shard->Settle();
      if (is_last || sub_groups_[i + 1].first != shard) leave(*shard);
    }
  }

 private:
  const Tiers& tiers_;
  std::vector<std::pair<OptimizerShard*, OptimizerShard::SubGroup>> sub_groups_;
};

}  // namespace

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config,
                                   const std::optional<config::ZenFlowConfig>& zenflow)
    : model_(model), optimizer_(optim::MakeOptimizer(config)) {
  const Tiers& tiers = model.context().tiers;
  const std::vector<bool> resident = ListResidentBuckets(model);
  ForEachTrainableBucket(model, [&](Bucket& bucket, std::int64_t first) {
    const bool stays = resident[shards_.size()];
    bucket.gradients().set_storage_tier(
        stays ? StorageTier::kHere : tiers.gradients,
        [&bucket](const at::Tensor& shard) { return SumOfSquares(bucket, shard); });
    shards_.push_back(
        std::make_unique<OptimizerShard>(bucket.context(), bucket, *optimizer_, first,
                                         stays ? StorageTier::kHere : tiers.optimizer));
    parameter_count_ = first + bucket.parameters().layout().size();
    takes_all_at_once_ =
        optimizer_->reach(bucket.parameters().parameter(0).group) == optim::Reach::kModel;
  });
  squares_.resize(shards_.size());
  ReserveGradientSpace(model, resident);
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
                    .end = [this] { FinishOverlappedUpdate(); }});
}

ShardedOptimizer::~ShardedOptimizer() {
  if (overlapped_update_.valid()) overlapped_update_.wait();
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
    topology::Coordinates coordinates = context.mesh.CoordinatesOf(rank);
    for (const int stage : stages) {
      name += " " + std::to_string(stage);
      coordinates[static_cast<std::size_t>(topology::Axis::kPipeline)] = stage;
      ranks.push_back(context.mesh.RankAt(coordinates));
    }
    FlatGradients& gradients = bucket.gradients();
    const Lease mean = gradients.for_optimizer(gradients.optimizer_range(), Access::kUpdate);
    context.groups.all->Group(name, ranks)
        .AllReduce(mean.tensor(), comm::ReduceOp::kSum, first.name);
  });
}

void ShardedOptimizer::ReduceGradients(std::int64_t step) {
  FinishOverlappedUpdate();  // of a failed pass
  own_gradients_ = optimizer_->NeedsLocalGradients(step);
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
  optim::SquareSum device_sum;
  Squares sum;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    sum.Add(squares_[i] ? *squares_[i] : Squares{SumOfSquaresOf(*shards_[i], &device_sum)});
  }
  sum.Add({.on_device = device_sum.Sum()});
  return sum;
}

// Windows of files are opened for updates that write them fully, so a skipped update cannot use
// them.
bool ShardedOptimizer::takes_decision() const {
  const Context& context = model_.context();
  const Tiers& tiers = context.tiers;
  const bool in_files = tiers.parameters == StorageTier::kFile ||
                        tiers.gradients == StorageTier::kFile ||
                        tiers.optimizer == StorageTier::kFile;
  return optimizer_->takes_decision() && !own_gradients_ && zenflow_ == nullptr && !in_files &&
         !tiers.updates_in_backward && !context.blockwise_state;
}

// The sum for a mean in a file is already known, unless the mean has been written since.
double ShardedOptimizer::SumOfSquaresOf(const OptimizerShard& shard,
                                        optim::SquareSum* device_sum) const {
  FlatGradients& gradients = shard.bucket().gradients();
  if (const std::optional<double> measured = gradients.measured()) return *measured;
  const double sum = SumOfSquares(shard.bucket(), gradients.shard().tensor(), device_sum);
  const bool stays = shard.bucket().context().tiers.gradients == StorageTier::kHere;
  if (!stays && device_sum != nullptr) device_sum->Measure();  // before its tensors are offloaded
  gradients.Offload(gradients.optimizer_range());
  return sum;
}

void ShardedOptimizer::Step(const optim::Update& update) {
  model_.ReleaseAll();  // a forward pass without backward left values that go stale
  if (zenflow_) {
    zenflow_->Step(update);
  } else if (takes_all_at_once_) {
    StepAtOnce(update);
  } else {
    StepInSubGroups(update);
  }
  WaitAndOffload();
}

void ShardedOptimizer::WaitAndOffload() {
  model_.AwaitParameters();
  for (const auto& shard : shards_) shard->Offload();
}

optim::RankSlices ShardedOptimizer::DescribeRank() const {
  return {.slices = {},
          .parameter_count = parameter_count_,
          .groups = model_.context().groups,
          .ledger = model_.context().ledger};
}

void ShardedOptimizer::StepAtOnce(const optim::Update& update) {
  const SliceUse use = update.decision.defined() ? SliceUse::kDecided : SliceUse::kUpdate;
  optim::RankSlices all = DescribeRank();
  std::vector<Lease> leases;
  std::vector<std::size_t> ends;  // by shard: end of its parts in all.parts
  for (const auto& shard : shards_) {
    for (const OptimizerShard::SubGroup& sub_group : shard->ListSubGroups(kUnlimited)) {
      all.slices.push_back(shard->MakeSlice(sub_group, use, &leases));
    }
    ends.push_back(all.slices.size());
  }
  optimizer_->Begin(update, all);
  for (std::size_t i = 0, slice = 0; i < shards_.size(); ++i) {
    for (; slice < ends[i]; ++slice) optimizer_->Apply(update, all.slices[slice]);
    shards_[i]->Publish();  // overlaps with the next update
  }
}

void ShardedOptimizer::StepInSubGroups(const optim::Update& update) {
  const SliceUse use = update.decision.defined() ? SliceUse::kDecided : SliceUse::kUpdate;
  SubGroupQueue sub_groups(model_.context().tiers), again(model_.context().tiers);
  const bool was_right = !update_ || update_->gradient_scale == update.gradient_scale;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (!squares_[i]) sub_groups.Add(*shards_[i]);
    if (squares_[i] && !was_right) again.Add(*shards_[i]);
  }
  optim::RankSlices all = DescribeRank();
  all.for_each = [&](const optim::VisitSlice& visit) {
    sub_groups.Take(SliceUse::kReview, visit, [](OptimizerShard& shard) { shard.Offload(); });
  };
  optimizer_->Begin(update, all);
  const auto apply = [&](const optim::OptimizerSlice& slice) { optimizer_->Apply(update, slice); };
  const auto leave = [](OptimizerShard& shard) {
    shard.Publish();  // overlaps with the next update
    shard.Offload();
  };
  if (!was_right) WaitAndOffload();  // the values being published are wrong
  again.Take(SliceUse::kRetry, apply, leave);
  sub_groups.Take(use, apply, leave);
}

bool ShardedOptimizer::RollBack() {
  FinishOverlappedUpdate();  // of a failed pass
  if (!has_updated()) return true;
  if (!model_.context().tiers.rolls_back) return false;
  model_.ReleaseAll();
  WaitAndOffload();  // the values being published are wrong
  SubGroupQueue sub_groups(model_.context().tiers);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (squares_[i]) sub_groups.Add(*shards_[i]);
  }
  sub_groups.Take(
      SliceUse::kRetry, [](const optim::OptimizerSlice&) {},
      [](OptimizerShard& shard) { shard.PublishWeights(); });
  WaitAndOffload();
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
  shards[0]->PrefetchState(shards[0]->ListSubGroups(tiers.most_elements)[0]);
}

void ShardedOptimizer::UpdateUnit(int unit) {
  DS_CHECK(update_.has_value());
  FinishOverlappedUpdate();
  const auto shards = ShardsOf(unit);
  const auto sub_groups = std::make_shared<SubGroupQueue>(model_.context().tiers);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::optional<Squares>& squares = squares_[first_of_unit_[static_cast<std::size_t>(unit)] + i];
    TORCH_CHECK(!squares,
                "a backward pass through several forward passes gives a block its gradients more "
                "than once, and super_offload has updated it by the first: call backward for each");
    FlatGradients& gradients = shards[i]->bucket().gradients();
    gradients.Reduce();
    optim::SquareSum device_sum;
    squares = {.on_host = SumOfSquaresOf(*shards[i], &device_sum)};
    squares->on_device = device_sum.Sum();
    sub_groups->Add(*shards[i]);
  }
  const Tiers& tiers = model_.context().tiers;
  const SliceUse use = tiers.rolls_back ? SliceUse::kTry : SliceUse::kUpdate;
  const auto apply = [this](const optim::OptimizerSlice& slice) {
    optimizer_->Apply(*update_, slice);
  };
  if (!tiers.overlaps_update) {
    sub_groups->Take(use, apply, [this](OptimizerShard& shard) { LeaveUpdated(shard); });
    return;
  }
  for (const auto& shard : shards) updating_shards_.push_back(shard.get());
  overlapped_update_ = tiers.update_thread->Run(
      [sub_groups, use, apply] { sub_groups->Take(use, apply, [](const OptimizerShard&) {}); });
}

void ShardedOptimizer::LeaveUpdated(OptimizerShard& shard) {
  if (!model_.context().tiers.rolls_back) shard.bucket().gradients().DropMean();
  shard.Publish();  // overlaps with the backward pass
  shard.Offload();
}

void ShardedOptimizer::FinishOverlappedUpdate() {
  if (!overlapped_update_.valid()) return;
  const std::vector<OptimizerShard*> shards = std::exchange(updating_shards_, {});
  overlapped_update_.get();
  for (OptimizerShard* const shard : shards) LeaveUpdated(*shard);
}

void ShardedOptimizer::ClearGradients() {
  FinishOverlappedUpdate();  // of a failed pass
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
    const FlatRange stored = frozen.stored_range();
    CheckpointedRange held{frozen.store(), stored, stored, "", context.sharding.parameters};
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
  WaitAndOffload();
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
    const bool was_sharded = bucket.context().sharding.parameters;
    if (was_sharded && !bucket.trainable()) bucket.parameters().Publish();
  });
  WaitAndOffload();
}

}  // namespace ds::zero
