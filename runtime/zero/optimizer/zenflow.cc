#include "runtime/zero/optimizer/zenflow.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/optim/kernels/flat_update.h"
#include "runtime/zero/optimizer/update_thread.h"
#include "runtime/zero/storage/store_source.h"

namespace ds::zero {
namespace {

using device::MemoryUse;
using SliceUse = OptimizerShard::SliceUse;

constexpr std::int64_t kFullRange = std::numeric_limits<std::int64_t>::max();

constexpr std::string_view kMoments[] = {"/zenflow_exp_avg", "/zenflow_exp_avg_sq"};
constexpr std::string_view kGradient = "/zenflow_gradient";

// Adds |values| to the sums of a matrix's columns; values[0] is element `start` of the matrix.
void AddToColumns(const at::Tensor& values, std::int64_t start, const at::Tensor& sums) {
  const std::int64_t columns = sums.numel(), end = start + values.numel();
  const at::Tensor sizes = values.to(at::kFloat).abs();
  for (std::int64_t at = start; at < end;) {
    const std::int64_t column = at % columns;
    const bool full_rows = column == 0 && end - at >= columns;
    const std::int64_t rows = full_rows ? (end - at) / columns : 1;
    const std::int64_t width = std::min(columns - column, end - at);
    const at::Tensor some = sizes.narrow(0, at - start, rows * width).view({rows, width});
    sums.narrow(0, column, width).add_(some.sum(0));
    at += rows * width;
  }
}

// Returns the number of important elements of a matrix before element `at`.
std::int64_t CountBefore(std::int64_t at, std::int64_t columns,
                         const std::vector<std::int64_t>& chosen) {
  const auto in_row = std::lower_bound(chosen.begin(), chosen.end(), at % columns);
  return at / columns * static_cast<std::int64_t>(chosen.size()) + (in_row - chosen.begin());
}

}  // namespace

ZenFlow::ZenFlow(const Context& context, const config::ZenFlowConfig& config,
                 optim::Optimizer& optimizer)
    : context_(context),
      config_(config),
      optimizer_(optimizer),
      launch_(optim::FindFlatUpdate(context.device)) {}

ZenFlow::~ZenFlow() {
  if (overlapped_update_.valid()) overlapped_update_.wait();
}

// Returns for each parameter the index of its matrix, or -1.
std::vector<int> ZenFlow::AddMatrices(const FlatParameters& parameters) {
  std::vector<int> matrix_of;
  for (int i = 0; i < parameters.layout().size(); ++i) {
    const at::Tensor& tensor = parameters.parameter(i).tensor;
    const bool is_matrix = tensor.dim() == 2;
    matrix_of.push_back(is_matrix ? static_cast<int>(matrices_.size()) : -1);
    if (!is_matrix) continue;
    matrices_.push_back({parameters.parameter(i).name, tensor.size(1), columns_});
    columns_ += tensor.size(1);
  }
  return matrix_of;
}

void ZenFlow::Add(OptimizerShard& shard) {
  const FlatParameters& parameters = shard.bucket().parameters();
  const FlatRange all = shard.bucket().gradients().optimizer_range();
  const StorageTier unselected =
      context_.sharding.optimizer ? context_.tiers.optimizer : StorageTier::kHere;
  const FlatSpec spec{all.count, c10::kFloat, MemoryUse::kOptimizerState, unselected};
  AccumulatedShard waiting{.shard = &shard, .gradients = {Store(context_, spec), Store()}};
  waiting.gradients[0].Zero();
  waiting.gradients[0].Offload();
  if (config_.overlap_step) {
    waiting.gradients[1] = Store(context_, spec);
    waiting.gradients[1].Zero();
    waiting.gradients[1].Offload();
  }
  const std::vector<int> matrix_of = AddMatrices(parameters);
  for (const OptimizerShard::SubGroup& sub_group : shard.ListSubGroups(kFullRange)) {
    Range range{.shard = &shard,
                .sub_group = sub_group,
                .own = {sub_group.range.start - shard.start(), sub_group.range.count},
                .shard_index = waiting_.size()};
    for (const Piece& piece : parameters.layout().FindPieces(sub_group.range)) {
      range.parts.push_back({.piece = piece,
                             .shape = parameters.parameter(piece.parameter).tensor.sizes().vec(),
                             .matrix = matrix_of[static_cast<std::size_t>(piece.parameter)]});
    }
    ranges_.push_back(std::move(range));
  }
  if (config_.overlap_step && !context_.dtypes.has_master_weights()) {
    waiting.weights = Store(
        context_, {all.count, context_.dtypes.parameter, MemoryUse::kMasterWeights, unselected});
    waiting.weights.Offload();  // the background update reads them there
  }
  waiting_.push_back(std::move(waiting));
}

at::Tensor ZenFlow::Gather(const at::Tensor& from, const Range& range) const {
  at::Tensor to = at::zeros({range.padded()}, from.options());
  to.narrow(0, 0, range.count).copy_(at::index_select(from, 0, range.indices.to(from.device())));
  return to;
}

void ZenFlow::Scatter(const Range& range, const at::Tensor& values, const at::Tensor& to) const {
  to.index_copy_(0, range.indices.to(to.device()),
                 values.narrow(0, 0, range.count).to(to.options()));
}

Lease ZenFlow::AcquireUnselectedWeights(Range& range) {
  Store& own = waiting_[range.shard_index].weights;
  return own.defined() ? own.AcquireOnOwnTier(range.own, Access::kUpdate)
                       : range.shard->AcquireMastersOnOwnTier(range.own);
}

void ZenFlow::AddGradients(const optim::Update& update) {
  for (AccumulatedShard& waiting : waiting_) {
    FlatGradients& gradients = waiting.shard->bucket().gradients();
    const FlatRange all = gradients.optimizer_range();
    const Lease sum = waiting.gradients[current_].AcquireOnOwnTier(all, Access::kUpdate);
    const Lease gradient = gradients.for_optimizer(all);
    if (steps_ == 0) {
      sum.tensor().copy_(gradient.tensor()).mul_(update.gradient_scale);
    } else {
      sum.tensor().add_(gradient.tensor().to(sum.tensor().options()), update.gradient_scale);
    }
  }
  ++steps_;
}

void ZenFlow::UpdateImportant(const optim::Update& update, Range* range) {
  std::vector<Lease> leases;
  const optim::OptimizerSlice target =
      range->shard->MakeSlice(range->sub_group, SliceUse::kTarget, &leases);
  optim::OptimizerSlice slice{.launch = launch_, .group = target.group};
  slice.gradient = Gather(target.gradient, *range);
  Lease weights;
  if (range->weights.defined()) {
    weights = range->weights.Acquire();
    slice.parameter = weights.tensor();
  } else {
    slice.parameter = Gather(target.parameter, *range);
  }
  for (Store& store : range->moments) {
    slice.state.push_back(leases.emplace_back(store.Acquire()).tensor());
  }
  optim::Update own = update;  // its moments start after the warm-up
  own.step = update.step - config_.full_warm_up_rounds;
  optimizer_.Apply(own, slice);
  range->updated = slice.parameter;
  Scatter(*range, slice.parameter, target.parameter);
}

void ZenFlow::UpdateUnselected(const optim::Update& update) {
  optim::Update mean = update;
  mean.gradient_scale = 1.0 / static_cast<double>(steps_);
  for (Range& range : ranges_) {
    UpdateUnselectedOf(&range, mean);
    range.shard->Offload(range.sub_group);
  }
}

void ZenFlow::UpdateUnselectedOf(Range* range, const optim::Update& mean) {
  std::vector<Lease> leases;
  optim::OptimizerSlice slice =
      range->shard->MakeSlice(range->sub_group, SliceUse::kUpdate, &leases);
  AccumulatedShard& waiting = waiting_[range->shard_index];
  const Lease sum = waiting.gradients[current_].AcquireOnOwnTier(range->own, Access::kRead);
  slice.gradient = sum.tensor().to(context_.device);
  optimizer_.Apply(mean, slice);
  if (range->updated.defined()) {
    Scatter(*range, range->updated, slice.parameter);
    if (slice.published.defined()) Scatter(*range, range->updated, slice.published);
  }
  if (!waiting.weights.defined()) return;
  waiting.weights.AcquireOnOwnTier(range->own, Access::kOverwrite).tensor().copy_(slice.parameter);
}

// The slices are views of the stores' memory, which is not used otherwise until the job has ended.
void ZenFlow::UpdateUnselectedOverlapped(const optim::Update& update) {
  TakeOver();
  struct Job {
    std::vector<optim::OptimizerSlice> slices;
    std::vector<Lease> leases;
    optim::Update mean;
  };
  const auto job = std::make_shared<Job>();
  job->mean = update;
  job->mean.gradient_scale = 1.0 / static_cast<double>(steps_);
  for (Range& range : ranges_) {
    optim::OptimizerSlice slice =
        range.shard->MakeSlice(range.sub_group, SliceUse::kStateOnly, &job->leases);
    slice.parameter = job->leases.emplace_back(AcquireUnselectedWeights(range)).tensor();
    Store& sum = waiting_[range.shard_index].gradients[current_];
    slice.gradient =
        job->leases.emplace_back(sum.AcquireOnOwnTier(range.own, Access::kRead)).tensor();
    job->slices.push_back(std::move(slice));
  }
  const auto run = [job, &optimizer = optimizer_] {
    for (const optim::OptimizerSlice& slice : job->slices) optimizer.Apply(job->mean, slice);
    job->slices.clear();
  };
  UpdateThread* const thread = context_.tiers.update_thread;
  overlapped_update_ = thread != nullptr ? thread->Run(run) : std::async(std::launch::async, run);
  current_ = 1 - current_;
}

// Important columns keep their current values.
void ZenFlow::TakeOver() {
  if (!overlapped_update_.valid()) return;
  overlapped_update_.get();
  for (Range& range : ranges_) {
    std::vector<Lease> leases;
    const optim::OptimizerSlice target =
        range.shard->MakeSlice(range.sub_group, SliceUse::kTargetAlone, &leases);
    const Lease weights = AcquireUnselectedWeights(range);
    const at::Tensor previous =
        range.indices.defined() ? Gather(target.parameter, range) : at::Tensor();
    target.parameter.copy_(weights.tensor());
    if (previous.defined()) Scatter(range, previous, target.parameter);
  }
}

void ZenFlow::Settle() {
  if (!overlapped_update_.valid()) return;
  TakeOver();
  for (AccumulatedShard& waiting : waiting_) {
    waiting.shard->Publish();
    waiting.shard->Offload();
  }
}

void ZenFlow::WriteBack() {
  if (overlapped_update_.valid()) overlapped_update_.wait();
  for (Range& range : ranges_) {
    if (!range.indices.defined()) continue;
    const Lease unselected = AcquireUnselectedWeights(range);
    if (range.weights.defined()) {
      const Lease weights =
          range.weights.AcquireOnOwnTier(range.weights.full_range(), Access::kRead);
      Scatter(range, weights.tensor(), unselected.tensor());
    } else if (waiting_[range.shard_index].weights.defined()) {
      std::vector<Lease> leases;
      const optim::OptimizerSlice target =
          range.shard->MakeSlice(range.sub_group, SliceUse::kTargetAlone, &leases);
      Scatter(range, Gather(target.parameter, range), unselected.tensor());
    }
  }
}

void ZenFlow::WeightsWereWritten() {
  for (Range& range : ranges_) {
    Store& own = waiting_[range.shard_index].weights;
    if (own.defined()) {
      std::vector<Lease> leases;
      const optim::OptimizerSlice target =
          range.shard->MakeSlice(range.sub_group, SliceUse::kTargetAlone, &leases);
      own.AcquireOnOwnTier(range.own, Access::kOverwrite).tensor().copy_(target.parameter);
    }
    if (!range.weights.defined()) continue;
    const Lease masters = AcquireUnselectedWeights(range);
    range.weights.Acquire(Access::kOverwrite).tensor().copy_(Gather(masters.tensor(), range));
  }
}

void ZenFlow::Step(const optim::Update& update) {
  const ZenFlowStep step = PlanZenFlowStep(config_, update.step);
  if (step.selects) Select();
  AddGradients(update);
  bool updates_unselected = step.updates_unselected;
  if (step.has_important && !config_.update_interval) {
    updates_unselected |= balance_.Add(MeasureMatrices(update.gradient_scale), config_);
  }
  if (step.has_important) {
    for (Range& range : ranges_) {
      UpdateImportant(update, &range);
      for (Store& store : range.moments) store.Offload();
    }
  }
  if (updates_unselected) {
    config_.overlap_step&& step.has_important ? UpdateUnselectedOverlapped(update)
                                              : UpdateUnselected(update);
    steps_ = 0;
    balance_.Clear();
  }
  for (Range& range : ranges_) range.updated = at::Tensor();
  for (AccumulatedShard& waiting : waiting_) {
    waiting.shard->Publish();  // overlaps with the next shard's
    waiting.shard->Offload();
  }
}

// Selects the important columns and locates them on this rank.

void ZenFlow::MakeIndices(Range* range) {
  std::vector<std::int64_t> indices;
  for (const ParameterPiece& part : range->parts) {
    const Piece& piece = part.piece;
    const std::int64_t start = piece.parameter_start, end = start + piece.count;
    const auto add = [&](std::int64_t element) {
      if (element >= start && element < end) indices.push_back(piece.range_start + element - start);
    };
    if (part.matrix < 0) {
      for (std::int64_t i = start; i < end; ++i) add(i);
      continue;
    }
    const Matrix& matrix = matrices_[static_cast<std::size_t>(part.matrix)];
    for (std::int64_t row = start / matrix.columns; row * matrix.columns < end; ++row) {
      for (const std::int64_t column : matrix.chosen) add(row * matrix.columns + column);
    }
  }
  range->count = static_cast<std::int64_t>(indices.size());
  range->indices = at::tensor(indices, at::kLong);
  PutIndices(range, context_.device, context_.tier());
}

void ZenFlow::PutIndices(Range* range, at::Device device, device::MemoryTier tier) const {
  if (!range->indices.defined()) return;
  range->indices = range->indices.to(device);
  range->booked = device::LedgerEntry(context_.ledger, MemoryUse::kOptimizerState, tier,
                                      static_cast<std::int64_t>(range->indices.nbytes()));
}

ZenFlow::ImportantPiece ZenFlow::FindImportant(const ParameterPiece& part) const {
  const Piece& piece = part.piece;
  if (part.matrix < 0) {
    return {.shape = part.shape, .start = piece.parameter_start, .count = piece.count};
  }
  const Matrix& matrix = matrices_[static_cast<std::size_t>(part.matrix)];
  const auto before = [&](std::int64_t at) {
    return CountBefore(at, matrix.columns, matrix.chosen);
  };
  const std::int64_t start = before(piece.parameter_start);
  return {.shape = {part.shape.at(0), static_cast<std::int64_t>(matrix.chosen.size())},
          .start = start,
          .count = before(piece.parameter_start + piece.count) - start};
}

void ZenFlow::Forget(Range* range) {
  range->indices = at::Tensor();
  range->booked = {};
  range->count = 0;
  range->weights = {};
  for (Store& store : range->moments) store = {};
}

// Moments start at zero, weights at the masters' values.
void ZenFlow::AllocateRange(Range* range, bool takes_weights) {
  MakeIndices(range);
  const bool is_offloaded = config_.offload && !context_.device.is_cpu();
  for (Store& store : range->moments) {
    store = Store(context_, {range->padded(), c10::kFloat, MemoryUse::kOptimizerState,
                             is_offloaded ? StorageTier::kHost : StorageTier::kHere});
    store.Zero();
    store.Offload();
  }
  if (!context_.dtypes.has_master_weights()) return;
  range->weights = Store(context_, {range->padded(), context_.dtypes.master,
                                    MemoryUse::kMasterWeights, StorageTier::kHere});
  if (!takes_weights) return;
  const Lease masters = AcquireUnselectedWeights(*range);
  range->weights.Acquire(Access::kOverwrite).tensor().copy_(Gather(masters.tensor(), *range));
}

void ZenFlow::Select() {
  TakeOver();  // published with the other changes of the step
  WriteBack();
  const at::Tensor sums =
      at::zeros({columns_}, at::TensorOptions(at::kFloat).device(context_.device));
  for (const Range& range : ranges_) {
    const Lease gradient = range.shard->bucket().gradients().for_optimizer(range.own);
    for (const ParameterPiece& part : range.parts) {
      if (part.matrix < 0) continue;
      const Matrix& matrix = matrices_[static_cast<std::size_t>(part.matrix)];
      AddToColumns(gradient.tensor().narrow(0, part.piece.range_start, part.piece.count),
                   part.piece.parameter_start, sums.narrow(0, matrix.first_sum, matrix.columns));
    }
  }
  if (context_.sharding.optimizer && columns_ > 0) {
    context_.groups.shards->AllReduce(sums, comm::ReduceOp::kSum, "importance of columns");
  }
  const at::Tensor host = sums.to(at::kCPU);
  const float* const first = host.const_data_ptr<float>();
  for (Matrix& matrix : matrices_) {
    const float* const own = first + matrix.first_sum;
    matrix.chosen = ChooseColumns({own, own + matrix.columns}, config_.topk_ratio);
  }
  for (Range& range : ranges_) AllocateRange(&range, /*takes_weights=*/true);
  is_selected_ = true;
}

std::vector<ZenFlowSums> ZenFlow::MeasureMatrices(double scale) const {
  std::vector<double> own(2 * matrices_.size(), 0.0);
  for (const Range& range : ranges_) {
    const Lease lease = range.shard->bucket().gradients().for_optimizer(range.own);
    const at::Tensor sizes = lease.tensor().to(at::kFloat).abs();
    const at::Tensor important = at::zeros_like(sizes);
    important.index_copy_(0, range.indices, sizes.index_select(0, range.indices));
    for (const ParameterPiece& part : range.parts) {
      if (part.matrix < 0) continue;
      const auto sum = [&](const at::Tensor& values) {
        return scale * values.narrow(0, part.piece.range_start, part.piece.count)
                           .sum(at::kDouble)
                           .item<double>();
      };
      const auto i = 2 * static_cast<std::size_t>(part.matrix);
      own[i] += sum(important);
      own[i + 1] += sum(sizes);
    }
  }
  std::vector<ZenFlowSums> sums(matrices_.size());
  const auto add = [&](const std::vector<double>& rank) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i].important += rank[2 * i];
      sums[i].unselected += rank[2 * i + 1] - rank[2 * i];
    }
  };
  if (!context_.sharding.optimizer) {
    add(own);
  } else {
    for (const auto& rank : comm::GatherNumbers(own, *context_.groups.shards)) add(rank);
  }
  return sums;
}

// Checkpoints and moves to the host: state in addition to the weights and the optimizer state.

void ZenFlow::MoveToHost(StateKind kind) {
  const bool masters = kind == StateKind::kHpParams;
  if (!masters && kind != StateKind::kOptimStates) return;
  for (Range& range : ranges_) {
    if (masters) {
      range.weights.Release();
      continue;
    }
    for (Store& store : range.moments) store.Release();
    PutIndices(&range, at::kCPU, device::MemoryTier::kHost);
  }
  for (AccumulatedShard& waiting : waiting_) {
    if (masters) {
      waiting.weights.Release();
      continue;
    }
    for (Store& store : waiting.gradients) store.Release();
  }
}

// Offloaded stores stay offloaded between steps.
void ZenFlow::MoveBack() {
  const auto move = [](Store& store) {
    if (!store.is_offloaded()) store.Prefetch();
  };
  for (Range& range : ranges_) {
    for (Store& store : range.moments) move(store);
    move(range.weights);
    PutIndices(&range, context_.device, context_.tier());
  }
  for (AccumulatedShard& waiting : waiting_) {
    for (Store& store : waiting.gradients) move(store);
    move(waiting.weights);
  }
}

// The important columns of a matrix form a matrix of their own, sharded among ranks like the
// original.
void ZenFlow::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  const bool sharded = context_.sharding.optimizer;
  for (Range& range : ranges_) {
    const FlatParameters& parameters = range.shard->bucket().parameters();
    Store& sum = waiting_[range.shard_index].gradients[current_];
    const FlatRange stored{range.shard->start(),
                           range.shard->bucket().gradients().optimizer_range().count};
    AddShardsOf(context_, parameters,
                {sum, stored, range.sub_group.range, std::string(kGradient), sharded}, shards);
    if (!range.indices.defined()) continue;
    std::int64_t first = 0;
    for (const ParameterPiece& part : range.parts) {
      const NamedParameter& parameter = parameters.parameter(part.piece.parameter);
      const ImportantPiece piece = FindImportant(part);
      checkpoint::Placement placement = parameter.placement;
      placement.global_shape = piece.shape;
      const auto axes = sharded ? context_.ShardCopyAxes(parameter.placement)
                                : context_.FullCopyAxes(parameter.placement);
      for (std::size_t i = 0; i < 2; ++i) {
        shards->push_back({.name = parameter.name + std::string(kMoments[i]),
                           .placement = placement,
                           .flat_start = piece.start,
                           .source = SourceOf(range.moments[i], {first, piece.count}),
                           .replica = context_.ReplicaOf(parameter.placement, axes)});
      }
      first += piece.count;
    }
  }
}

nlohmann::json ZenFlow::State() const {
  nlohmann::json columns = nlohmann::json::object(), sums = nlohmann::json::array();
  for (const Matrix& matrix : matrices_) {
    if (!matrix.chosen.empty()) columns[matrix.name] = matrix.chosen;
  }
  for (const ZenFlowSums& each : balance_.sums()) {
    sums.push_back({each.important, each.unselected});
  }
  return {{"columns", columns},
          {"selected", is_selected_},
          {"waiting_steps", steps_},
          {"balance_steps", balance_.steps()},
          {"balance", sums}};
}

// The contents of a checkpoint besides the tensors.
struct ZenFlow::Read {
  bool selected = false;
  std::vector<std::vector<std::int64_t>> chosen;  // of each matrix
  std::int64_t waiting_steps = 0;
  std::int64_t balance_steps = 0;
  std::vector<ZenFlowSums> balance;
};

StatusOr<ZenFlow::Read> ZenFlow::ReadState(const nlohmann::json& state) const {
  const auto wrong = [](const std::string& what) {
    return DataLossError("the state of ZenFlow " + what);
  };
  try {
    Read read{.selected = state.at("selected"),
              .chosen = {},
              .waiting_steps = state.at("waiting_steps"),
              .balance_steps = state.at("balance_steps"),
              .balance = {}};
    for (const Matrix& matrix : matrices_) {
      std::vector<std::int64_t>& columns = read.chosen.emplace_back();
      if (read.selected) state.at("columns").at(matrix.name).get_to(columns);
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::int64_t least = i == 0 ? 0 : columns[i - 1] + 1;
        if (columns[i] >= least && columns[i] < matrix.columns) continue;
        return wrong("has columns that " + matrix.name + " does not have");
      }
    }
    for (const nlohmann::json& each : state.at("balance")) {
      read.balance.push_back({each.at(0), each.at(1)});
    }
    return read;
  } catch (const nlohmann::json::exception&) {
    return wrong("has a value that is missing or of another type");
  }
}

Status ZenFlow::CheckState(const nlohmann::json& state) const {
  const StatusOr<Read> read = ReadState(state);
  return read.ok() ? OkStatus() : read.status();
}

void ZenFlow::ExpectState(const nlohmann::json& state) {
  if (overlapped_update_.valid()) overlapped_update_.get();  // its result will be overwritten
  Read read = ReadState(state).value();
  steps_ = read.waiting_steps;
  balance_.Load(read.balance_steps, std::move(read.balance));
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    matrices_[i].chosen = std::move(read.chosen[i]);
  }
  is_selected_ = read.selected;
  for (Range& range : ranges_) {
    is_selected_ ? AllocateRange(&range, /*takes_weights=*/false) : Forget(&range);
  }
}

}  // namespace ds::zero
