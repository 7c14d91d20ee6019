#include "runtime/engine/train_step.h"

#include <ATen/ops/full_like.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/base/philox.h"
#include "runtime/comm/agreement.h"
#include "runtime/engine/engine_parts.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/precision/autocast.h"
#include "runtime/zero/gradient_checks.h"

namespace ds::engine {
namespace {

// The tensors of a bundle that gradients flow through.
std::vector<at::Tensor*> ListDifferentiable(Bundle& bundle) {
  std::vector<at::Tensor*> tensors{&bundle.hidden, &bundle.loss};
  for (auto& [name, tensor] : bundle.extras) tensors.push_back(&tensor);
  return tensors;
}

Bundle LeaveBlock(zero::ShardedModel& sharded, int index, Bundle bundle) {
  const std::vector<at::Tensor*> places = ListDifferentiable(bundle);
  std::vector<at::Tensor> tensors;
  tensors.reserve(places.size());
  for (at::Tensor* place : places) tensors.push_back(std::move(*place));
  tensors = sharded.LeaveForward(index, std::move(tensors));
  for (std::size_t i = 0; i < places.size(); ++i) *places[i] = std::move(tensors[i]);
  return bundle;
}

// fp16.auto_cast: what comes into the model in another floating type.
void CastInputs(Bundle& bundle) {
  const auto cast = [](at::Tensor& tensor) {
    if (tensor.defined() && at::isFloatingType(tensor.scalar_type())) tensor = tensor.to(at::kHalf);
  };
  for (auto& [name, tensor] : bundle.batch) {
    if (name != "labels") cast(tensor);
  }
  cast(bundle.hidden);
  for (auto& [name, tensor] : bundle.extras) cast(tensor);
}

// fp16 ends at 65504, so that a loss in fp16 takes no larger scale: by what it does not take, a
// power of two, the gradients are multiplied when they arrive.
double FindArrivalFactor(const at::Tensor& loss, double scale) {
  constexpr double kMost = 32768.0;
  double factor = 1.0;
  while (loss.scalar_type() == at::kHalf && scale / factor > kMost) factor *= 2.0;
  return factor;
}

// The same on every rank.
struct Totals {
  double loss = 0.0;
  double norm = 0.0;    // of the scaled gradients
  double weight = 1.0;  // the mean of the losses'
  std::int64_t tokens = 0;
  std::int64_t samples = 0;
  std::int64_t most_labels = 0;  // of one micro-batch
  std::vector<double> rank_losses;
};

// Where nothing counts all gradients are 0, and anything may be what they are divided by.
double MeanWeight(double sum, std::size_t ranks) {
  return sum == 0.0 ? 1.0 : sum / static_cast<double>(ranks);
}

// The ranks that have samples of their own, this one among them.
std::vector<int> DataRanks(const EngineParts& parts) {
  return parts.mesh.GroupOf(parts.sharded->context().groups.all->rank(), topology::kDataAxes);
}

Totals SumOverRanks(const EngineParts& parts, double squares) {
  const StepInProgress& step = parts.step.current;
  const std::vector<std::vector<double>> ranks =
      comm::GatherNumbers({step.AddUpLosses(), squares, static_cast<double>(step.tokens),
                           static_cast<double>(step.samples), step.AddUpWeights(),
                           static_cast<double>(step.most_labels)},
                          *parts.sharded->context().groups.all);
  Totals totals;
  double all_squares = 0.0, all_weights = 0.0;
  for (const std::vector<double>& rank : ranks) {
    totals.rank_losses.push_back(rank[0]);
    all_squares += rank[1];
  }
  const std::vector<int> data_ranks = DataRanks(parts);
  for (const int data_rank : data_ranks) {
    const std::vector<double>& rank = ranks[static_cast<std::size_t>(data_rank)];
    totals.loss += rank[0];
    totals.tokens += static_cast<std::int64_t>(rank[2]);
    totals.samples += static_cast<std::int64_t>(rank[3]);
    all_weights += rank[4];
    totals.most_labels = std::max(totals.most_labels, static_cast<std::int64_t>(rank[5]));
  }
  totals.weight = MeanWeight(all_weights, data_ranks.size());
  totals.loss /= static_cast<double>(data_ranks.size()) * totals.weight;
  totals.norm = std::sqrt(all_squares);
  return totals;
}

// Which gradient and whose loss is not finite. Collective.
std::string DescribeNonFinite(const zero::ShardedModel& sharded, const Totals& totals) {
  const auto gradient = zero::FindNonFiniteGradient(sharded);
  std::string text = gradient ? "the gradient of " + *gradient + " is not finite"
                              : "the gradient norm is not finite";
  for (std::size_t rank = 0; rank < totals.rank_losses.size(); ++rank) {
    if (std::isfinite(totals.rank_losses[rank])) continue;
    text += "; the loss of rank " + std::to_string(rank) + " is " +
            std::to_string(totals.rank_losses[rank]);
  }
  return text;
}

Status NonFiniteError(std::int64_t step, const std::string& what) {
  return FailedPreconditionError("step " + std::to_string(step) + ": " + what +
                                 ". The parameters are those of the step before: lower the "
                                 "learning rate or look at the data of this step");
}

// Where the next micro-batch of so many samples stands: by its place in the step, whatever ranks
// and micro-batches it is cut into.
RandomPlace FindRandomPlace(const EngineParts& parts, std::int64_t samples) {
  const topology::Member reader =
      parts.mesh.MemberOf(parts.sharded->context().groups.all->rank(), topology::kDataAxes);
  const auto before = static_cast<std::int64_t>(parts.step.current.returned.size());
  const std::int64_t apart = std::max(samples, parts.config.batch.train_micro_batch_size_per_gpu);
  const std::uint64_t of_step = ExtendKey(ExtendKey(parts.seed, "step"),
                                          static_cast<std::uint64_t>(parts.step.counts.finished));
  return {.key = of_step, .first_sample = (before * reader.count + reader.index) * apart};
}

}  // namespace

at::Tensor Engine::forward(Bundle bundle) {
  parts_->ReloadStates();
  zero::ShardedModel& sharded = *parts_->sharded;
  if (c10::GradMode::is_enabled()) {
    parts_->step.current.samples += models::CountSamples(bundle.batch);
    const at::Tensor& labels_or_none = bundle.tensor("labels");
    const std::int64_t labels = labels_or_none.defined() ? labels_or_none.numel() : 0;
    parts_->step.current.tokens += labels;
    parts_->step.current.most_labels = std::max(parts_->step.current.most_labels, labels);
    parts_->step.current.backward_is_latest = false;
  }
  if (parts_->config.fp16.enabled && parts_->config.fp16.auto_cast) CastInputs(bundle);
  const precision::AutocastScope autocast(sharded.context().dtypes.autocast,
                                          sharded.context().device);
  bundle.loss_scale = parts_->backward_scale(/*scale_wrt_gas=*/true);
  bundle.loss_unit = parts_->loss_unit();
  bundle.random = FindRandomPlace(*parts_, models::CountSamples(bundle.batch));
  for (int i = 0; i < parts_->model->size(); ++i) {
    sharded.Enter(i);
    bundle.random.block = i;
    bundle = LeaveBlock(sharded, i, parts_->model->block(i).forward(std::move(bundle)));
  }
  sharded.EndForward();
  TORCH_CHECK(bundle.loss.defined() && bundle.loss.numel() == 1,
              "the model's last block has set no loss (a scalar): are there labels?");
  if (c10::GradMode::is_enabled()) {
    const double weight = bundle.loss_count ? *bundle.loss_count / bundle.loss_unit : 1.0;
    parts_->step.current.returned.push_back(
        {decltype(ReturnedLoss::loss)(bundle.loss.getIntrusivePtr()), weight});
  }
  return bundle.loss;
}

void EngineParts::AgreeOnWeight() {
  if (step.current.mean_weight) return;
  const auto ranks =
      comm::GatherNumbers({step.current.AddUpWeights()}, *sharded->context().groups.all);
  const std::vector<int> data_ranks = DataRanks(*this);
  double sum = 0.0;
  for (const int rank : data_ranks) sum += ranks[static_cast<std::size_t>(rank)][0];
  step.current.mean_weight = MeanWeight(sum, data_ranks.size());
}

void Engine::backward(const at::Tensor& loss, bool scale_wrt_gas) {
  const double weight = scale_wrt_gas ? parts_->step.current.FindWeight(loss) : 1.0;
  const double scale = parts_->backward_scale(scale_wrt_gas) * weight;
  const double factor = FindArrivalFactor(loss, scale);
  parts_->sharded->HoldGradients(parts_->step.local_gradients);
  parts_->sharded->ScaleGradients(factor);
  loss.backward(at::full_like(loss, scale / factor));
  parts_->sharded->EndBackward();
  parts_->step.current.losses.push_back({loss.detach(), scale_wrt_gas, weight});
  ++parts_->step.current.micro_batches;
  parts_->step.current.backward_is_latest = true;
}

Status EngineParts::HandleNonFinite(StepResult* result) {
  result->skipped = true;
  const Status scaled = loss_scaler.Update(/*overflow=*/true);
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

Status EngineParts::ApplyUpdate(double scaled_norm, std::vector<optim::ScheduledValues> scheduled) {
  if (!config.zero_optimization.ignore_unused_parameters) {
    DS_RETURN_IF_ERROR(zero::CheckNoneIsUnused(*sharded).WithContext(
        "step " + std::to_string(step.counts.finished + 1)));
  }
  const double unit = gradient_unit();
  const double clip =
      optim::ClipFactor(optimizer->NormToClip(scaled_norm) / unit, config.gradient_clipping);
  ++step.counts.applied;
  const optim::ScheduledValues first = scheduled[0];
  optimizer->Step({.lr = first.lr,
                   .gradient_scale = clip / unit,
                   .step = step.counts.applied,
                   .beta1 = first.momentum,
                   .groups = std::move(scheduled)});
  step.latest_was_applied = true;
  rates.OnUpdate();
  return loss_scaler.Update(/*overflow=*/false);
}

StatusOr<StepResult> Engine::step() {
  if (parts_->step.local_gradients) {
    return FailedPreconditionError(
        "step() inside the scope of no_sync() or coalesce_grad_reduction(): end the scope first");
  }
  parts_->step.latest_was_applied = false;
  parts_->step.current.backward_is_latest = false;
  if (!parts_->step.IsUpdateDue(parts_->accumulation())) return StepResult{};
  zero::ShardedOptimizer& optimizer = *parts_->optimizer;
  DS_RETURN_IF_ERROR(parts_->rates.CheckGoesOn(parts_->step.counts.applied));
  std::vector<optim::ScheduledValues> scheduled =
      parts_->rates.FindNext(parts_->step.counts.applied);
  const double loss_scale = parts_->loss_scaler.scale();

  DS_RETURN_IF_ERROR(parts_->ReduceGradientsOnce());
  const Totals totals = SumOverRanks(*parts_, optimizer.SumOfSquaresOfShard());
  parts_->step.current.mean_weight = totals.weight;
  StepResult result{.boundary = true,
                    .step = parts_->step.counts.finished + 1,
                    .loss = totals.loss,
                    .grad_norm = totals.norm / parts_->gradient_unit(),
                    .lr = scheduled[0].lr,
                    .loss_scale = loss_scale,
                    .tokens = totals.tokens,
                    .samples = totals.samples};
  if (std::isfinite(totals.norm)) {
    DS_RETURN_IF_ERROR(parts_->ApplyUpdate(totals.norm, std::move(scheduled)));
  } else {
    result.non_finite = DescribeNonFinite(*parts_->sharded, totals);
    DS_RETURN_IF_ERROR(parts_->HandleNonFinite(&result));
  }
  optimizer.ClearGradients();
  parts_->step.Finish(result);
  parts_->step.counts.most_labels = totals.most_labels;
  return result;
}

StatusOr<StepResult> TrainStep(Engine& engine, const BatchSource& next_batch) {
  for (std::int64_t i = 0; i < engine.gradient_accumulation_steps(); ++i) {
    DS_ASSIGN_OR_RETURN(Bundle batch, next_batch());
    const at::Tensor loss = engine.forward(std::move(batch));
    engine.backward(loss);
  }
  return engine.step();
}

}  // namespace ds::engine
