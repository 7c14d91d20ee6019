#include "runtime/zero/optimizer/zenflow.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

#include "runtime/optim/kernels/flat_update.h"
#include "runtime/zero/optimizer/update_thread.h"

namespace ds::zero {
namespace {

using device::MemoryUse;
using PartUse = OptimizerShard::PartUse;

constexpr std::int64_t kWholeRange = std::numeric_limits<std::int64_t>::max();

}  // namespace

ZenFlow::ZenFlow(const Context& context, const config::ZenFlowConfig& config,
                 optim::Optimizer& optimizer)
    : context_(context),
      config_(config),
      optimizer_(optimizer),
      launch_(optim::FindFlatUpdate(context.device)) {}

ZenFlow::~ZenFlow() {
  if (beside_.valid()) beside_.wait();
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
  const Rest rest = context_.sharding.optimizer ? context_.tiers.optimizer : Rest::kHere;
  const FlatSpec spec{all.count, c10::kFloat, MemoryUse::kOptimizerState, rest};
  Waiting waiting{.shard = &shard, .gradients = {Store(context_, spec), Store()}};
  waiting.gradients[0].Zero();
  waiting.gradients[0].Stow();
  if (config_.overlap_step) {
    waiting.gradients[1] = Store(context_, spec);
    waiting.gradients[1].Zero();
    waiting.gradients[1].Stow();
  }
  const std::vector<int> matrix_of = AddMatrices(parameters);
  for (const OptimizerShard::Turn& turn : shard.ListTurns(kWholeRange)) {
    Range range{.shard = &shard,
                .turn = turn,
                .own = {turn.range.start - shard.start(), turn.range.count},
                .shard_index = waiting_.size()};
    for (const Piece& piece : parameters.layout().FindPieces(turn.range)) {
      range.parts.push_back({.piece = piece,
                             .shape = parameters.parameter(piece.parameter).tensor.sizes().vec(),
                             .matrix = matrix_of[static_cast<std::size_t>(piece.parameter)]});
    }
    ranges_.push_back(std::move(range));
  }
  if (config_.overlap_step && !context_.dtypes.has_master_weights()) {
    waiting.weights =
        Store(context_, {all.count, context_.dtypes.parameter, MemoryUse::kMasterWeights, rest});
    waiting.weights.Stow();  // the background update reads them there
  }
  waiting_.push_back(std::move(waiting));
}

at::Tensor ZenFlow::Gather(const at::Tensor& from, const Range& range) const {
  at::Tensor to = at::zeros({range.padded()}, from.options());
  to.narrow(0, 0, range.count).copy_(at::index_select(from, 0, range.places.to(from.device())));
  return to;
}

void ZenFlow::Scatter(const Range& range, const at::Tensor& values, const at::Tensor& to) const {
  to.index_copy_(0, range.places.to(to.device()),
                 values.narrow(0, 0, range.count).to(to.options()));
}

Lease ZenFlow::AcquireRestWeights(Range& range) {
  Store& own = waiting_[range.shard_index].weights;
  return own.defined() ? own.AcquireWhereItLies(range.own, Access::kUpdate)
                       : range.shard->AcquireMastersWhereTheyLie(range.own);
}

void ZenFlow::AddGradients(const optim::Update& update) {
  for (Waiting& waiting : waiting_) {
    FlatGradients& gradients = waiting.shard->bucket().gradients();
    const FlatRange all = gradients.optimizer_range();
    const Lease sum = waiting.gradients[current_].AcquireWhereItLies(all, Access::kUpdate);
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
  const optim::Part target = range->shard->MakePart(range->turn, PartUse::kTarget, &leases);
  optim::Part part{.launch = launch_, .group = target.group};
  part.gradient = Gather(target.gradient, *range);
  Lease weights;
  if (range->weights.defined()) {
    weights = range->weights.Acquire();
    part.parameter = weights.tensor();
  } else {
    part.parameter = Gather(target.parameter, *range);
  }
  for (Store& store : range->moments) {
    part.state.push_back(leases.emplace_back(store.Acquire()).tensor());
  }
  optim::Update own = update;  // its moments start after the warm-up
  own.step = update.step - config_.full_warm_up_rounds;
  optimizer_.Apply(own, part);
  range->updated = part.parameter;
  Scatter(*range, part.parameter, target.parameter);
}

void ZenFlow::UpdateRest(const optim::Update& update) {
  optim::Update mean = update;
  mean.gradient_scale = 1.0 / static_cast<double>(steps_);
  for (Range& range : ranges_) {
    UpdateRestOf(&range, mean);
    range.shard->Stow(range.turn);
  }
}

void ZenFlow::UpdateRestOf(Range* range, const optim::Update& mean) {
  std::vector<Lease> leases;
  optim::Part part = range->shard->MakePart(range->turn, PartUse::kUpdate, &leases);
  Waiting& waiting = waiting_[range->shard_index];
  const Lease sum = waiting.gradients[current_].AcquireWhereItLies(range->own, Access::kRead);
  part.gradient = sum.tensor().to(context_.device);
  optimizer_.Apply(mean, part);
  if (range->updated.defined()) {
    Scatter(*range, range->updated, part.parameter);
    if (part.published.defined()) Scatter(*range, range->updated, part.published);
  }
  if (!waiting.weights.defined()) return;
  waiting.weights.AcquireWhereItLies(range->own, Access::kOverwrite).tensor().copy_(part.parameter);
}

// The parts are views of the stores' memory, which is not used otherwise until the job has ended.
void ZenFlow::UpdateRestBeside(const optim::Update& update) {
  TakeOver();
  struct Job {
    std::vector<optim::Part> parts;
    std::vector<Lease> leases;
    optim::Update mean;
  };
  const auto job = std::make_shared<Job>();
  job->mean = update;
  job->mean.gradient_scale = 1.0 / static_cast<double>(steps_);
  for (Range& range : ranges_) {
    optim::Part part = range.shard->MakePart(range.turn, PartUse::kBeside, &job->leases);
    part.parameter = job->leases.emplace_back(AcquireRestWeights(range)).tensor();
    Store& sum = waiting_[range.shard_index].gradients[current_];
    part.gradient =
        job->leases.emplace_back(sum.AcquireWhereItLies(range.own, Access::kRead)).tensor();
    job->parts.push_back(std::move(part));
  }
  const auto run = [job, &optimizer = optimizer_] {
    for (const optim::Part& part : job->parts) optimizer.Apply(job->mean, part);
    job->parts.clear();
  };
  UpdateThread* const thread = context_.tiers.update_thread;
  beside_ = thread != nullptr ? thread->Run(run) : std::async(std::launch::async, run);
  current_ = 1 - current_;
}

// Important columns keep their current values.
void ZenFlow::TakeOver() {
  if (!beside_.valid()) return;
  beside_.get();
  for (Range& range : ranges_) {
    std::vector<Lease> leases;
    const optim::Part target = range.shard->MakePart(range.turn, PartUse::kTargetAlone, &leases);
    const Lease weights = AcquireRestWeights(range);
    const at::Tensor kept = range.places.defined() ? Gather(target.parameter, range) : at::Tensor();
    target.parameter.copy_(weights.tensor());
    if (kept.defined()) Scatter(range, kept, target.parameter);
  }
}

void ZenFlow::Settle() {
  if (!beside_.valid()) return;
  TakeOver();
  for (Waiting& waiting : waiting_) {
    waiting.shard->Publish();
    waiting.shard->Stow();
  }
}

void ZenFlow::WriteBack() {
  if (beside_.valid()) beside_.wait();
  for (Range& range : ranges_) {
    if (!range.places.defined()) continue;
    const Lease rest = AcquireRestWeights(range);
    if (range.weights.defined()) {
      const Lease weights = range.weights.AcquireWhereItLies(range.weights.whole(), Access::kRead);
      Scatter(range, weights.tensor(), rest.tensor());
    } else if (waiting_[range.shard_index].weights.defined()) {
      std::vector<Lease> leases;
      const optim::Part target = range.shard->MakePart(range.turn, PartUse::kTargetAlone, &leases);
      Scatter(range, Gather(target.parameter, range), rest.tensor());
    }
  }
}

void ZenFlow::WeightsWereWritten() {
  for (Range& range : ranges_) {
    Store& own = waiting_[range.shard_index].weights;
    if (own.defined()) {
      std::vector<Lease> leases;
      const optim::Part target = range.shard->MakePart(range.turn, PartUse::kTargetAlone, &leases);
      own.AcquireWhereItLies(range.own, Access::kOverwrite).tensor().copy_(target.parameter);
    }
    if (!range.weights.defined()) continue;
    const Lease masters = AcquireRestWeights(range);
    range.weights.Acquire(Access::kOverwrite).tensor().copy_(Gather(masters.tensor(), range));
  }
}

void ZenFlow::Step(const optim::Update& update) {
  const ZenFlowStep step = PlanZenFlowStep(config_, update.step);
  if (step.selects) Select();
  AddGradients(update);
  bool updates_rest = step.updates_rest;
  if (step.has_important && !config_.update_interval) {
    updates_rest |= balance_.Add(MeasureMatrices(update.gradient_scale), config_);
  }
  if (step.has_important) {
    for (Range& range : ranges_) {
      UpdateImportant(update, &range);
      for (Store& store : range.moments) store.Stow();
    }
  }
  if (updates_rest) {
    config_.overlap_step&& step.has_important ? UpdateRestBeside(update) : UpdateRest(update);
    steps_ = 0;
    balance_.Clear();
  }
  for (Range& range : ranges_) range.updated = at::Tensor();
  for (Waiting& waiting : waiting_) {
    waiting.shard->Publish();  // overlaps with the next shard's
    waiting.shard->Stow();
  }
}

}  // namespace ds::zero
