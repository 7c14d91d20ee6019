#include "runtime/engine/executor_parts.h"

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
#include "runtime/engine/engine_parts.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/zero/optimizer/gradient_checks.h"

namespace ds::engine {
namespace {

// Sums over all ranks; the same on every rank.
struct Totals {
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

// Returns the mean weight. If no loss has a weight, all gradients are 0 and any divisor works.
double MeanWeight(double sum, std::size_t ranks) {
  return sum == 0.0 ? 1.0 : sum / static_cast<double>(ranks);
}

void TakeLosses(const EngineParts& parts, std::vector<double> rank_losses, Totals* totals) {
  const std::vector<int> gradient_ranks = parts.LossRanksOver(topology::kGradientAxes);
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

Totals SumOverRanks(const EngineParts& parts, const OwnNumbers& own) {
  const StepInProgress& step = parts.step.current;
  const at::Tensor& routes = step.expert_routes;
  const auto size_of_routes = [&](std::int64_t dimension) {
    return routes.defined() ? static_cast<double>(routes.size(dimension)) : 0.0;
  };
  const std::vector<std::vector<double>> ranks = comm::GatherNumbers(
      {own.loss, own.squares, static_cast<double>(step.tokens), static_cast<double>(step.samples),
       step.AddUpWeights(), static_cast<double>(step.most_labels),
       std::bit_cast<double>(parts.sharded->plan_hash()), size_of_routes(0), size_of_routes(1)},
      *parts.sharded->context().groups.all);
  Totals totals;
  std::vector<double> rank_losses;
  double all_squares = 0.0, all_weights = 0.0;
  for (const std::vector<double>& rank : ranks) {
    rank_losses.push_back(rank[0]);
    all_squares += rank[1];
    totals.plan_hashes.push_back(std::bit_cast<std::uint64_t>(rank[6]));
  }
  // Ranks with parts of the same samples have their own losses, of their own labels.
  const std::vector<int> gradient_ranks = parts.LossRanksOver(topology::kGradientAxes);
  for (const int gradient_rank : gradient_ranks) {
    all_weights += ranks[static_cast<std::size_t>(gradient_rank)][4];
  }
  for (const int data_rank : parts.LossRanksOver(topology::kDataAxes)) {
    const std::vector<double>& rank = ranks[static_cast<std::size_t>(data_rank)];
    totals.tokens += static_cast<std::int64_t>(rank[2]);
    totals.samples += static_cast<std::int64_t>(rank[3]);
    totals.most_labels = std::max(totals.most_labels, static_cast<std::int64_t>(rank[5]));
  }
  const std::vector<double>& counter = ranks[static_cast<std::size_t>(gradient_ranks.front())];
  totals.route_sizes = {static_cast<std::int64_t>(counter[7]),
                        static_cast<std::int64_t>(counter[8])};
  totals.weight = MeanWeight(all_weights, gradient_ranks.size());
  TakeLosses(parts, std::move(rank_losses), &totals);
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
OwnNumbers ReadOwn(const EngineParts& parts) {
  const StepInProgress& step = parts.step.current;
  const zero::Squares squares = parts.optimizer->MeasureShard();
  const std::vector<double> read = ReadStep(step, squares.on_device);
  return {.loss = step.AddUpLosses(read),
          .squares = squares.on_host + (squares.on_device.defined() ? read.back() : 0.0)};
}

// Sums the squares over all ranks on their device. Collective.
at::Tensor SumOnDevice(const EngineParts& parts, const zero::Squares& own) {
  const auto options = at::TensorOptions(at::kDouble).device(parts.sharded->context().device);
  at::Tensor sum = at::full({1}, own.on_host, options);
  if (own.on_device.defined()) sum.add_(own.on_device);
  comm::Communicator& all = *parts.sharded->context().groups.all;
  if (all.size() > 1) all.AllReduce(sum, comm::ReduceOp::kSum, "squares of gradients");
  return sum.squeeze(0);
}

// Ends a step that was decided on the device: waits for the result. Collective.
void ReadOutcome(const EngineParts& parts, const at::Tensor& squares, Totals* totals) {
  const StepInProgress& step = parts.step.current;
  const std::vector<double> read = ReadStep(step, squares);
  std::vector<double> losses;
  for (const std::vector<double>& rank :
       comm::GatherNumbers({step.AddUpLosses(read)}, *parts.sharded->context().groups.all)) {
    losses.push_back(rank[0]);
  }
  TakeLosses(parts, std::move(losses), totals);
  totals->norm = std::sqrt(read.back());
}

// Sums the routes over ranks. The last blocks of all ranks left routes, or none did. With several
// stages, the last one broadcasts them. Collective.
std::vector<std::vector<std::int64_t>> SumExpertRoutes(const EngineParts& parts,
                                                       const Totals& totals) {
  std::vector<std::vector<std::int64_t>> layers;
  if (totals.route_sizes[0] == 0) return layers;
  constexpr const char* kTag = "expert routes";
  const at::Tensor& own = parts.step.current.expert_routes;
  if (own.defined()) {
    parts.sharded->context().groups.gradients->AllReduce(own, comm::ReduceOp::kSum, kTag);
  }
  const at::Tensor routes =
      own.defined() ? own.to(at::kCPU).contiguous() : at::empty(totals.route_sizes, at::kLong);
  if (parts.channels) {
    const auto counters = topology::kGradientAxes.With(topology::Axis::kTensor);
    parts.world().control().Broadcast(routes, parts.LossRanksOver(counters).front(), kTag);
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
std::string AgreeOnNonFiniteGradient(const EngineParts& parts) {
  const zero::ShardedModel& sharded = *parts.sharded;
  const std::string own =
      zero::FindNonFiniteGradient(sharded, parts.step.current.FindNonFiniteLoss()).value_or("");
  comm::Communicator& all = *sharded.context().groups.all;
  const auto found = comm::GatherNumber(own.empty() ? 0 : 1, all);
  for (int rank = all.size() - 1; rank >= 0; --rank) {
    if (found[static_cast<std::size_t>(rank)] != 0) return comm::BroadcastText(own, rank, all);
  }
  return "";
}

// Describes the gradient and the losses that are not finite. Collective.
std::string DescribeNonFinite(const EngineParts& parts, const Totals& totals) {
  const std::string gradient = AgreeOnNonFiniteGradient(parts);
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
                     "lost: go on from a checkpoint, and "
                   : ". The parameters are unchanged since the step before: ") +
      "lower the learning rate or check the data of this step");
}

Status CheckGradientsSuit(EngineParts& parts) {
  if (parts.config.zero_optimization.ignore_unused_parameters) return OkStatus();
  Status used = zero::CheckNoneIsUnused(*parts.sharded);
  // A stage only knows its own parameters, and a rank only its experts.
  if (parts.channels || parts.mesh.degrees().expert > 1) {
    used = comm::AgreeOnStatus(used, parts.world());
  }
  return used.WithContext("step " + std::to_string(parts.step.counts.finished + 1));
}

Status CountUpdate(EngineParts& parts) {
  ++parts.step.counts.applied;
  parts.step.latest_was_applied = true;
  parts.rates.OnUpdate();
  return parts.loss_scaler.Update(/*overflow=*/false);
}

}  // namespace

void EngineParts::AgreeOnWeight() {
  if (step.current.mean_weight) return;
  const auto ranks =
      comm::GatherNumbers({step.current.AddUpWeights()}, *sharded->context().groups.all);
  const std::vector<int> gradient_ranks = LossRanksOver(topology::kGradientAxes);
  double sum = 0.0;
  for (const int rank : gradient_ranks) sum += ranks[static_cast<std::size_t>(rank)][0];
  step.current.mean_weight = MeanWeight(sum, gradient_ranks.size());
}

Status EngineParts::HandleNonFinite(StepResult* result) {
  result->skipped = true;
  if (!optimizer->TakeBack() && non_finite != NonFinitePolicy::kRewind) {
    return NonFiniteError(result->step, result->non_finite, /*has_updated=*/true);
  }
  const double scale = loss_scaler.scale();
  const Status scaled = loss_scaler.Update(/*overflow=*/true);
  const bool autocasts_to_fp16 =
      config.torch_autocast.enabled && config.torch_autocast.dtype == config::DataType::kFp16;
  if (config.fp16.enabled || autocasts_to_fp16) {
    result->overflow = loss_scaler.DescribeOverflow(scale);
  }
  if (loss_scaler.dynamic() && scaled.ok()) return OkStatus();
  switch (non_finite) {
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
  const bool bf16_skips = config.bf16.enabled && config.bf16.check_grad_overflow;
  if (config.fp16.enabled || bf16_skips) return OkStatus();
  return NonFiniteError(result->step, result->non_finite);
}

Status EngineParts::ReduceGradientsOnce() {
  if (step.current.micro_batches == 0 || !step.IsUpdateDue(accumulation())) {
    return FailedPreconditionError(
        "the gradients of this step are not there: " + std::to_string(step.current.micro_batches) +
        " micro-batches have been through backward");
  }
  if (!step.current.reduced) optimizer->ReduceGradients(step.counts.applied + 1);
  step.current.reduced = true;
  return OkStatus();
}

optim::Update EngineParts::MakeUpdate(double clip,
                                      std::vector<optim::ScheduledValues> scheduled) const {
  const optim::ScheduledValues first = scheduled[0];
  return {.lr = first.lr,
          .gradient_scale = clip / gradient_unit(),
          .step = step.counts.applied + 1,
          .beta1 = first.momentum,
          .groups = std::move(scheduled)};
}

Status EngineParts::BeginUpdate() {
  if (optimizer->has_updated()) {
    return FailedPreconditionError(
        "the last backward pass of this step has updated the model (super_offload): call step() "
        "before the next one");
  }
  DS_RETURN_IF_ERROR(rates.CheckGoesOn(step.counts.applied));
  AgreeOnWeight();
  optimizer->BeginUpdate(MakeUpdate(/*clip=*/1.0, rates.FindNext(step.counts.applied)));
  return OkStatus();
}

namespace {

// Updates the model, or its remaining parameters, by the host's decision: waits for the norm first.
Status UpdateFromHost(EngineParts& parts, const Totals& totals,
                      std::vector<optim::ScheduledValues> scheduled, StepResult* result) {
  if (!std::isfinite(totals.norm)) {
    result->non_finite = DescribeNonFinite(parts, totals);
    return parts.HandleNonFinite(result);
  }
  DS_RETURN_IF_ERROR(CheckGradientsSuit(parts));
  const double norm = parts.optimizer->NormToClip(totals.norm) / parts.gradient_unit();
  const double clip = optim::ClipFactor(norm, parts.config.gradient_clipping);
  parts.optimizer->Step(parts.MakeUpdate(clip, std::move(scheduled)));
  return CountUpdate(parts);
}

// Updates by the device's decision and waits for the result. The parameters are unchanged if the
// device decided against the update.
Status UpdateOnDevice(EngineParts& parts, std::vector<optim::ScheduledValues> scheduled,
                      Totals* totals, StepResult* result) {
  DS_ASSIGN_OR_RETURN(const at::Tensor squares, LaunchUpdate(parts, std::move(scheduled)));
  ReadOutcome(parts, squares, totals);
  if (std::isfinite(totals->norm)) return CountUpdate(parts);
  result->non_finite = DescribeNonFinite(parts, *totals);
  return parts.HandleNonFinite(result);
}

}  // namespace

StatusOr<at::Tensor> LaunchUpdate(EngineParts& parts,
                                  std::vector<optim::ScheduledValues> scheduled) {
  DS_RETURN_IF_ERROR(CheckGradientsSuit(parts));
  at::Tensor squares = SumOnDevice(parts, parts.optimizer->MeasureShard());
  optim::Update update = parts.MakeUpdate(/*clip=*/1.0, std::move(scheduled));
  update.decision =
      optim::DecideUpdate(squares, parts.gradient_unit(), parts.config.gradient_clipping);
  parts.optimizer->Step(update);
  return squares;
}

StatusOr<StepResult> FinishStep(EngineParts& parts) {
  DS_CHECK(parts.step.current.reduced);
  zero::ShardedOptimizer& optimizer = *parts.optimizer;
  std::vector<optim::ScheduledValues> scheduled = parts.rates.FindNext(parts.step.counts.applied);
  const bool on_device = parts.decides_on_device && optimizer.takes_decision();

  Totals totals = SumOverRanks(parts, on_device ? OwnNumbers() : ReadOwn(parts));
  DS_RETURN_IF_ERROR(CheckPlansAgree(parts.mesh, totals.plan_hashes));
  parts.step.current.mean_weight = totals.weight;
  StepResult result{.boundary = true,
                    .step = parts.step.counts.finished + 1,
                    .lr = scheduled[0].lr,
                    .loss_scale = parts.loss_scaler.scale(),
                    .tokens = totals.tokens,
                    .samples = totals.samples,
                    .expert_routes = SumExpertRoutes(parts, totals)};
  const double unit = parts.gradient_unit();
  DS_RETURN_IF_ERROR(on_device ? UpdateOnDevice(parts, std::move(scheduled), &totals, &result)
                               : UpdateFromHost(parts, totals, std::move(scheduled), &result));
  result.loss = totals.loss;
  result.grad_norm = totals.norm / unit;
  optimizer.ClearGradients();
  parts.step.Finish(result);
  parts.step.counts.most_labels = totals.most_labels;
  return result;
}

}  // namespace ds::engine
