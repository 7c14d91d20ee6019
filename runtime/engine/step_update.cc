#include "runtime/engine/step_update.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/agreement.h"
#include "runtime/device/transfers.h"
#include "runtime/engine/engine_components.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/zero/optimizer/gradient_checks.h"

namespace ds::engine {
// Sums over all ranks; the same on every rank.
struct StepTotals {
  double loss = 0.0;
  double norm = 0.0;    // of the scaled gradients
  double weight = 1.0;  // mean of the losses' weights
  std::int64_t tokens = 0;
  std::int64_t samples = 0;
  std::int64_t most_labels = 0;  // maximum over micro-batches
  // Layers and experts of the routes that the last stage counted; 0 without experts.
  std::array<std::int64_t, 2> route_sizes{};
  std::vector<double> rank_losses;
  std::vector<std::uint64_t> plan_hashes;  // by rank
};

namespace {

// Returns the mean weight. If no loss has a weight, all gradients are 0 and any divisor works.
double MeanWeight(double sum, std::size_t ranks) {
  return sum == 0.0 ? 1.0 : sum / static_cast<double>(ranks);
}

void TakeLosses(const RankTopology& topology, std::vector<double> rank_losses, StepTotals* totals) {
  const std::vector<int> gradient_ranks = topology.LossRanksOver(topology::kGradientAxes);
  totals->loss = 0.0;
  for (const int rank : gradient_ranks) totals->loss += rank_losses[static_cast<std::size_t>(rank)];
  totals->loss /= static_cast<double>(gradient_ranks.size()) * totals->weight;
  totals->rank_losses = std::move(rank_losses);
}

// This rank's numbers of a step, if they are known before its update.
struct OwnNumbers {
  double loss = 0.0;
  double squares = 0.0;
};

StepTotals SumOverRanks(const RankTopology& topology, const StepInProgress& step,
                        const OwnNumbers& own, std::uint64_t plan_hash) {
  const at::Tensor& routes = step.expert_routes;
  const auto size_of_routes = [&](std::int64_t dimension) {
    return routes.defined() ? static_cast<double>(routes.size(dimension)) : 0.0;
  };
  const std::vector<std::vector<double>> ranks = comm::GatherNumbers(
      {own.loss, own.squares, static_cast<double>(step.tokens), static_cast<double>(step.samples),
       step.AddUpWeights(), static_cast<double>(step.most_labels), std::bit_cast<double>(plan_hash),
       size_of_routes(0), size_of_routes(1)},
      *topology.world);
  StepTotals totals;
  std::vector<double> rank_losses;
  double all_squares = 0.0, all_weights = 0.0;
  for (const std::vector<double>& rank : ranks) {
    rank_losses.push_back(rank[0]);
    all_squares += rank[1];
    totals.plan_hashes.push_back(std::bit_cast<std::uint64_t>(rank[6]));
  }
  // Ranks with parts of the same samples have their own losses, of their own labels.
  const std::vector<int> gradient_ranks = topology.LossRanksOver(topology::kGradientAxes);
  for (const int gradient_rank : gradient_ranks) {
    all_weights += ranks[static_cast<std::size_t>(gradient_rank)][4];
  }
  for (const int data_rank : topology.LossRanksOver(topology::kDataAxes)) {
    const std::vector<double>& rank = ranks[static_cast<std::size_t>(data_rank)];
    totals.tokens += static_cast<std::int64_t>(rank[2]);
    totals.samples += static_cast<std::int64_t>(rank[3]);
    totals.most_labels = std::max(totals.most_labels, static_cast<std::int64_t>(rank[5]));
  }
  const std::vector<double>& counter = ranks[static_cast<std::size_t>(gradient_ranks.front())];
  totals.route_sizes = {static_cast<std::int64_t>(counter[7]),
                        static_cast<std::int64_t>(counter[8])};
  totals.weight = MeanWeight(all_weights, gradient_ranks.size());
  TakeLosses(topology, std::move(rank_losses), &totals);
  totals.norm = std::sqrt(all_squares);
  return totals;
}

// Reads the losses of the micro-batches and `more`, an optional double scalar, which comes last.
// Waits for the device once.
std::vector<double> ReadStep(const StepInProgress& step, const at::Tensor& more) {
  std::vector<at::Tensor> numbers = step.ListLosses();
  if (more.defined()) numbers.push_back(more);
  if (numbers.empty()) return {};
  return device::ReadNumbers(at::stack(numbers));
}

// Waits for this rank's numbers of the step.
OwnNumbers ReadOwn(const StepInProgress& step, const zero::ShardedOptimizer& optimizer) {
  const zero::Squares squares = optimizer.MeasureShard();
  const std::vector<double> read = ReadStep(step, squares.on_device);
  return {.loss = step.AddUpLosses(read),
          .squares = squares.on_host + (squares.on_device.defined() ? read.back() : 0.0)};
}

// Sums the squares over all ranks on their device. Collective.
at::Tensor SumOnDevice(const zero::Context& context, const zero::Squares& own) {
  const auto options = at::TensorOptions(at::kDouble).device(context.device);
  at::Tensor sum = at::full({1}, own.on_host, options);
  if (own.on_device.defined()) sum.add_(own.on_device);
  comm::Communicator& all = *context.groups.all;
  if (all.size() > 1) all.AllReduce(sum, comm::ReduceOp::kSum, "squares of gradients");
  return sum.squeeze(0);
}

// Ends a step that was decided on the device: waits for the result. Collective.
void ReadOutcome(const RankTopology& topology, const StepInProgress& step,
                 const at::Tensor& squares, StepTotals* totals) {
  const std::vector<double> read = ReadStep(step, squares);
  std::vector<double> losses;
  for (const std::vector<double>& rank :
       comm::GatherNumbers({step.AddUpLosses(read)}, *topology.world)) {
    losses.push_back(rank[0]);
  }
  TakeLosses(topology, std::move(losses), totals);
  totals->norm = std::sqrt(read.back());
}

// Sums the routes over ranks. The last blocks of all ranks left routes, or none did. With several
// stages, the last one broadcasts them. Collective.
std::vector<std::vector<std::int64_t>> SumExpertRoutes(const RankTopology& topology,
                                                       comm::Communicator& gradient_ranks,
                                                       const at::Tensor& own,
                                                       const StepTotals& totals) {
  std::vector<std::vector<std::int64_t>> layers;
  if (totals.route_sizes[0] == 0) return layers;
  constexpr const char* kTag = "expert routes";
  if (own.defined()) gradient_ranks.AllReduce(own, comm::ReduceOp::kSum, kTag);
  const at::Tensor routes =
      own.defined() ? own.to(at::kCPU).contiguous() : at::empty(totals.route_sizes, at::kLong);
  if (topology.channels) {
    const auto counters = topology::kGradientAxes.With(topology::Axis::kTensor);
    topology.world->control().Broadcast(routes, topology.LossRanksOver(counters).front(), kTag);
  }
  for (std::int64_t layer = 0; layer < routes.size(0); ++layer) {
    const auto* first = routes[layer].const_data_ptr<std::int64_t>();
    layers.emplace_back(first, first + routes.size(1));
  }
  return layers;
}

// Fails unless ranks with the same model gathered and reduced by the same plans. Otherwise the
// gathered values are inconsistent.
Status CheckPlansAgree(const topology::Mesh& mesh, const std::vector<std::uint64_t>& hashes) {
  for (int first = 0; first < mesh.world_size(); ++first) {
    if (mesh.MemberOf(first, topology::kGradientAxes).index != 0) continue;
    for (const int rank : mesh.GroupOf(first, topology::kGradientAxes)) {
      if (hashes[static_cast<std::size_t>(rank)] == hashes[static_cast<std::size_t>(first)])
        continue;
      return FailedPreconditionError(
          "rank " + std::to_string(rank) +
          " has gathered parameters and reduced gradients by another plan than rank " +
          std::to_string(first) +
          ": all ranks have to build the same model, and to call forward, backward, no_sync and "
          "coalesce_grad_reduction in the same order");
    }
  }
  return OkStatus();
}

// Returns the first gradient that is not finite. If several stages found one, the last stage's
// counts, because its backward runs first. Collective.
std::string AgreeOnNonFiniteGradient(const zero::ShardedModel& sharded,
                                     const StepInProgress& step) {
  const std::string own =
      zero::FindNonFiniteGradient(sharded, step.FindNonFiniteLoss()).value_or("");
  comm::Communicator& all = *sharded.context().groups.all;
  const auto found = comm::GatherNumber(own.empty() ? 0 : 1, all);
  for (int rank = all.size() - 1; rank >= 0; --rank) {
    if (found[static_cast<std::size_t>(rank)] != 0) return comm::BroadcastText(own, rank, all);
  }
  return "";
}

// Describes the gradient and the losses that are not finite. Collective.
std::string DescribeNonFinite(const zero::ShardedModel& sharded, const StepInProgress& step,
                              const StepTotals& totals) {
  const std::string gradient = AgreeOnNonFiniteGradient(sharded, step);
  std::string text = gradient.empty() ? "the gradient norm is not finite"
                                      : "the gradient of " + gradient + " is not finite";
  for (std::size_t rank = 0; rank < totals.rank_losses.size(); ++rank) {
    if (std::isfinite(totals.rank_losses[rank])) continue;
    text += "; the loss of rank " + std::to_string(rank) + " is " +
            std::to_string(totals.rank_losses[rank]);
  }
  return text;
}

Status NonFiniteError(std::int64_t step, const std::string& what, bool has_updated = false) {
  return FailedPreconditionError(
      "step " + std::to_string(step) + ": " + what +
      (has_updated ? ". Its backward pass has updated the parameters (super_offload), and they are "
                     "lost: resume from a checkpoint, and "
                   : ". The parameters are unchanged since the step before: ") +
      "lower the learning rate or check the data of this step");
}

}  // namespace

StepUpdate::StepUpdate(EngineComponents& engine)
    : config_(engine.config),
      topology_(engine.topology),
      model_(engine.model),
      step_(engine.step) {}

Status StepUpdate::CheckUnusedParameters() const {
  if (config_.zero_optimization.ignore_unused_parameters) return OkStatus();
  Status used = zero::CheckNoneIsUnused(*model_.sharded);
  // A stage only knows its own parameters, and a rank only its experts.
  if (topology_.channels || topology_.mesh.degrees().expert > 1) {
    used = comm::AgreeOnStatus(used, *topology_.world);
  }
  return used.WithContext("step " + std::to_string(step_.state.counts.finished + 1));
}

Status StepUpdate::CountUpdate() {
  ++step_.state.counts.applied;
  step_.state.latest_was_applied = true;
  step_.rates.OnUpdate();
  return step_.loss_scaler.Update(/*overflow=*/false);
}

void StepUpdate::AgreeOnWeight() {
  if (step_.state.current.mean_weight) return;
  const auto ranks = comm::GatherNumbers({step_.state.current.AddUpWeights()}, *topology_.world);
  const std::vector<int> gradient_ranks = topology_.LossRanksOver(topology::kGradientAxes);
  double sum = 0.0;
  for (const int rank : gradient_ranks) sum += ranks[static_cast<std::size_t>(rank)][0];
  step_.state.current.mean_weight = MeanWeight(sum, gradient_ranks.size());
}

Status StepUpdate::HandleNonFinite(StepResult* result) {
  result->skipped = true;
  if (!model_.optimizer->RollBack() && step_.non_finite != NonFinitePolicy::kRewind) {
    return NonFiniteError(result->step, result->non_finite, /*has_updated=*/true);
  }
  const double scale = step_.loss_scaler.scale();
  const Status scaled = step_.loss_scaler.Update(/*overflow=*/true);
  const bool autocasts_to_fp16 =
      config_.torch_autocast.enabled && config_.torch_autocast.dtype == config::DataType::kFp16;
  if (config_.fp16.enabled || autocasts_to_fp16) {
    result->overflow = step_.loss_scaler.DescribeOverflow(scale);
  }
  if (step_.loss_scaler.dynamic() && scaled.ok()) return OkStatus();
  switch (step_.non_finite) {
    case NonFinitePolicy::kRewind:
      result->rewind = true;
      return OkStatus();
    case NonFinitePolicy::kSkip:
      return OkStatus();
    case NonFinitePolicy::kStop:
      return NonFiniteError(result->step, result->non_finite);
    case NonFinitePolicy::kAsConfigured:
      break;
  }
  if (!scaled.ok()) {
    return NonFiniteError(result->step, result->non_finite + "; " + scaled.message());
  }
  const bool bf16_skips = config_.bf16.enabled && config_.bf16.check_grad_overflow;
  if (config_.fp16.enabled || bf16_skips) return OkStatus();
  return NonFiniteError(result->step, result->non_finite);
}

Status StepUpdate::ReduceGradientsOnce() {
  if (step_.state.current.CountStarted() == 0 || !step_.IsUpdateDue()) {
    return FailedPreconditionError("the gradients of this step are missing: " +
                                   std::to_string(step_.state.current.CountStarted()) +
                                   " micro-batches have been through backward");
  }
  if (!step_.state.current.reduced)
    model_.optimizer->ReduceGradients(step_.state.counts.optimizer_updates() + 1);
  step_.state.current.reduced = true;
  return OkStatus();
}

Status StepUpdate::BeginUpdate() {
  if (model_.optimizer->has_updated()) {
    return FailedPreconditionError(
        "the last backward pass of this step has updated the model (super_offload): call step() "
        "before the next one");
  }
  DS_RETURN_IF_ERROR(step_.rates.CheckCanResume(step_.state.counts.scheduled_updates()));
  AgreeOnWeight();
  model_.optimizer->BeginUpdate(
      step_.MakeUpdate(/*clip=*/1.0, step_.rates.FindNext(step_.state.counts.scheduled_updates())));
  return OkStatus();
}

// Updates the model, or its remaining parameters, by the host's decision: waits for the norm first.
Status StepUpdate::UpdateFromHost(const StepTotals& totals,
                                  std::vector<optim::ScheduledValues> scheduled,
                                  StepResult* result) {
  if (!std::isfinite(totals.norm)) {
    result->non_finite = DescribeNonFinite(*model_.sharded, step_.state.current, totals);
    return HandleNonFinite(result);
  }
  DS_RETURN_IF_ERROR(CheckUnusedParameters());
  const double norm = model_.optimizer->NormToClip(totals.norm) / step_.gradient_unit();
  const double clip = optim::ClipFactor(norm, config_.gradient_clipping);
  model_.optimizer->Step(step_.MakeUpdate(clip, std::move(scheduled)));
  return CountUpdate();
}

// Updates by the device's decision and waits for the result. The parameters are unchanged if the
// device decided against the update.
Status StepUpdate::UpdateOnDevice(std::vector<optim::ScheduledValues> scheduled, StepTotals* totals,
                                  StepResult* result) {
  DS_ASSIGN_OR_RETURN(const at::Tensor squares, Launch(std::move(scheduled)));
  ReadOutcome(topology_, step_.state.current, squares, totals);
  if (std::isfinite(totals->norm)) return CountUpdate();
  result->non_finite = DescribeNonFinite(*model_.sharded, step_.state.current, *totals);
  return HandleNonFinite(result);
}

StatusOr<at::Tensor> StepUpdate::Launch(std::vector<optim::ScheduledValues> scheduled) {
  DS_RETURN_IF_ERROR(CheckUnusedParameters());
  at::Tensor squares = SumOnDevice(model_.sharded->context(), model_.optimizer->MeasureShard());
  optim::Update update = step_.MakeUpdate(/*clip=*/1.0, std::move(scheduled));
  update.decision = optim::DecideUpdate(squares, step_.gradient_unit(), config_.gradient_clipping);
  model_.optimizer->Step(update);
  return squares;
}

StatusOr<StepResult> StepUpdate::Finish() {
  StepInProgress& current = step_.state.current;
  DS_CHECK(current.reduced);
  zero::ShardedOptimizer& optimizer = *model_.optimizer;
  std::vector<optim::ScheduledValues> scheduled =
      step_.rates.FindNext(step_.state.counts.scheduled_updates());
  const bool on_device = step_.decides_on_device && optimizer.takes_decision();

  const OwnNumbers own = on_device ? OwnNumbers() : ReadOwn(current, optimizer);
  StepTotals totals = SumOverRanks(topology_, current, own, model_.sharded->plan_hash());
  DS_RETURN_IF_ERROR(CheckPlansAgree(topology_.mesh, totals.plan_hashes));
  current.mean_weight = totals.weight;
  comm::Communicator& gradient_ranks = *model_.sharded->context().groups.gradients;
  StepResult result{
      .boundary = true,
      .step = step_.state.counts.finished + 1,
      .lr = scheduled[0].lr,
      .loss_scale = step_.loss_scaler.scale(),
      .tokens = totals.tokens,
      .samples = totals.samples,
      .expert_routes = SumExpertRoutes(topology_, gradient_ranks, current.expert_routes, totals)};
  const double unit = step_.gradient_unit();
  DS_RETURN_IF_ERROR(on_device ? UpdateOnDevice(std::move(scheduled), &totals, &result)
                               : UpdateFromHost(totals, std::move(scheduled), &result));
  result.loss = totals.loss;
  result.grad_norm = totals.norm / unit;
  optimizer.ClearGradients();
  step_.state.Finish(result);
  step_.state.counts.most_labels = totals.most_labels;
  return result;
}

}  // namespace ds::engine
