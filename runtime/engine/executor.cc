#include "runtime/engine/executor.h"

#include <ATen/ops/full_like.h>

#include <torch/csrc/autograd/autograd.h>
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/engine/engine_components.h"
#include "runtime/engine/stage_run.h"
#include "runtime/models/decoder/expert_load.h"

namespace ds::engine {
namespace {

// Casts floating-point inputs of the model to fp16 (fp16.auto_cast).
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

// Returns a power of two that gradients are multiplied by on arrival. The maximum of fp16 is 65504,
// so a loss in fp16 cannot take a larger scale; the factor makes up for the remainder.
double FindArrivalFactor(const at::Tensor& loss, double scale) {
  constexpr double kMost = 32768.0;
  double factor = 1.0;
  while (loss.scalar_type() == at::kHalf && scale / factor > kMost) factor *= 2.0;
  return factor;
}

// Returns the number of sample indices that a micro-batch of `samples` samples uses on each rank.
std::int64_t CountRandomPositions(const StepContext& step, std::int64_t samples) {
  return std::max(samples, step.batch.train_micro_batch_size_per_gpu);
}

// Returns the position of the next micro-batch, of `samples` samples, in the random streams. It
// depends on the samples' position in the step only, not on ranks and micro-batches. Unless the
// position was set, micro-batches of a step do not overlap if those at the same index are equally
// large on all ranks, or if none is larger than configured.
RandomPosition FindRandomPosition(const StepContext& step, const topology::Member& reader,
                                  std::int64_t samples) {
  const std::uint64_t of_step = ExtendKey(ExtendKey(step.seed, "step"),
                                          static_cast<std::uint64_t>(step.state.counts.finished));
  const std::int64_t counted = step.state.current.random_positions * reader.count +
                               reader.index * CountRandomPositions(step, samples);
  return {.key = of_step, .first_sample = step.state.current.next_position.value_or(counted)};
}

// Returns the handling of sharded gradients while others are still to come.
zero::GradientEnd ChooseEndAmongOthers(const zero::ShardedModel& sharded) {
  const bool adds_up = sharded.context().windows.gradients.full_step;
  return adds_up ? zero::GradientEnd::kHeld : zero::GradientEnd::kAsSharded;
}

// Fails if the program asks for an unsupported feature.
Status CheckIsBuilt(const pipeline::StageProgram& program, int chunks, bool has_channels) {
  using Kind = pipeline::Instruction::Kind;
  for (const auto& [kind, task, peer] : program) {
    if (task.chunk >= chunks) {
      return InvalidArgumentError("the step has a chunk " + std::to_string(task.chunk) +
                                  ", and the model " + std::to_string(chunks) +
                                  " (BlockList::SetPart)");
    }
    const bool computes = kind == Kind::kCompute;
    if (computes || kind == Kind::kReduce || kind == Kind::kStep) continue;
    if (!has_channels) {
      return InvalidArgumentError("the step has messages for or from stage " +
                                  std::to_string(peer) + ", and no channels for them");
    }
  }
  return OkStatus();
}

// Fails if the gradients of the step in progress are not those of its backward passes.
Status CheckGradients(const StepInProgress& step, const zero::ShardedModel& model) {
  if (step.backward_is_unfinished) {
    return FailedPreconditionError(
        "a backward pass of this step has thrown, so its gradients are incomplete: load a "
        "checkpoint, or create the engine again");
  }
  return model.CheckNoStrayGradients();
}

// Used in functions that return no status.
void ThrowIfError(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

}  // namespace

Executor::Executor(EngineComponents& engine, ChunkRunner& runner)
    : config_(engine.config),
      topology_(engine.topology),
      model_(engine.model),
      runner_(runner),
      step_(engine.step),
      reporter_(engine.reporter),
      update_(engine) {}

Executor::Executor(EngineComponents& engine) : Executor(engine, engine.runner) {}
Executor::Executor(Engine& engine) : Executor(*engine.components_) {}
Executor::Executor(Engine& engine, ChunkRunner& runner) : Executor(*engine.components_, runner) {}

// Returns whether this pass produces the last gradients of the step. Unknown with several chunks,
// because chunks of different micro-batches interleave.
bool Executor::BringsLastGradients() const {
  return topology_.virtual_stages.chunks == 1 && step_.IsInLastMicroBatch();
}

// Chooses when gradients are reduced. Unsharded gradients are reduced as they complete in the last
// backward pass, unless the update takes this rank's own gradients.
zero::GradientEnd Executor::ChooseGradientEnd() const {
  if (step_.state.local_gradients) return zero::GradientEnd::kHeld;
  if (!BringsLastGradients()) return ChooseEndAmongOthers(*model_.sharded);
  if (!model_.optimizer->TakesMeans(step_.state.counts.optimizer_updates() + 1)) {
    return zero::GradientEnd::kAsSharded;
  }
  const bool updates = model_.sharded->context().tiers.updates_in_backward;
  return updates ? zero::GradientEnd::kUpdate : zero::GradientEnd::kLast;
}

void Executor::BeginMicroBatch(Bundle* bundle) {
  const std::int64_t samples = models::CountSamples(bundle->batch);
  StepInProgress& current = step_.state.current;
  bundle->random = FindRandomPosition(
      step_, topology_.mesh.MemberOf(topology_.world->rank(), topology::kDataAxes), samples);
  current.next_position.reset();
  bundle->loss_scale = step_.backward_scale(/*scale_wrt_gas=*/true);
  bundle->loss_unit = step_.loss_unit();
  if (config_.fp16.enabled && config_.fp16.auto_cast) CastInputs(*bundle);
  if (!c10::GradMode::is_enabled()) return;
  reporter_.phases.EndMicroBatch();
  const at::Tensor& labels_or_none = bundle->tensor("labels");
  CountSamples(samples, labels_or_none.defined() ? labels_or_none.numel() : 0);
}

void Executor::CountSamples(std::int64_t samples, std::int64_t labels) {
  StepInProgress& current = step_.state.current;
  current.samples += samples;
  current.tokens += labels;
  current.most_labels = std::max(current.most_labels, labels);
  current.random_positions += CountRandomPositions(step_, samples);
}

Bundle Executor::RunChunk(Bundle bundle, int chunk) {
  BeginForwardPass();
  bundle = runner_.RunChunk(model_, topology_, std::move(bundle), chunk);
  EndForwardPass();
  return bundle;
}

void Executor::BeginForwardPass() {
  ThrowIfError(model_.ReloadStates());
  if (!c10::GradMode::is_enabled()) return;
  step_.state.current.backward_is_latest = false;
  reporter_.phases.Start(&PhaseTimes::forward);
}

void Executor::EndForwardPass() {
  if (!c10::GradMode::is_enabled()) return;
  reporter_.phases.Stop(&PhaseTimes::forward);
  reporter_.memory.Mark("forward");
}

Bundle Executor::RunToLoss(Bundle bundle, int chunk) {
  bundle = RunChunk(std::move(bundle), chunk);
  TORCH_CHECK(bundle.loss.defined() && bundle.loss.numel() == 1,
              "the model's last block has set no loss (a scalar): are there labels?");
  return bundle;
}

Bundle Executor::RunModel(Bundle bundle) {
  BeginMicroBatch(&bundle);
  return RunToLoss(std::move(bundle), /*chunk=*/0);
}

at::Tensor Executor::ForwardToLoss(Bundle bundle, int chunk) {
  bundle = RunToLoss(std::move(bundle), chunk);
  if (c10::GradMode::is_enabled()) {
    const double weight = bundle.loss_count ? *bundle.loss_count / bundle.loss_unit : 1.0;
    const auto routes = bundle.extras.find(models::kExpertRoutes);
    if (routes != bundle.extras.end()) step_.state.current.AddExpertRoutes(routes->second);
    step_.state.current.returned.push_back(
        {decltype(ReturnedLoss::loss)(bundle.loss.getIntrusivePtr()), weight});
  }
  return bundle.loss;
}

at::Tensor Executor::Forward(Bundle bundle) {
  BeginMicroBatch(&bundle);
  return ForwardToLoss(std::move(bundle), /*chunk=*/0);
}

void Executor::BeginGradients(double arrival_factor, zero::DelayedGradients* delayed) {
  ThrowIfError(CheckGradients(step_.state.current, *model_.sharded));
  // Where backward passes update the model, BeginUpdate says so.
  TORCH_CHECK(!step_.state.current.reduced || model_.optimizer->has_updated(),
              "a backward pass after the step's gradients have been added up over the ranks, as by "
              "safe_get_full_grad: read gradients after the step's last backward pass");
  step_.state.current.backward_is_unfinished = true;
  const zero::GradientEnd end =
      delayed != nullptr ? zero::GradientEnd::kLater : ChooseGradientEnd();
  model_.sharded->EndGradients(end);
  model_.sharded->ScaleGradients(arrival_factor);
  if (end == zero::GradientEnd::kUpdate) ThrowIfError(update_.BeginUpdate());
  if (delayed != nullptr) model_.sharded->DelayGradients(delayed);
  reporter_.phases.Start(&PhaseTimes::backward);
  reporter_.phases.Start(&PhaseTimes::backward_inner);
  model_.sharded->AcceptGradients(true);
}

void Executor::EndGradients(int chunk, zero::DelayedGradients* delayed) {
  model_.sharded->AcceptGradients(false);
  reporter_.phases.Stop(&PhaseTimes::backward_inner);
  reporter_.phases.Start(&PhaseTimes::backward_allreduce);
  model_.sharded->EndBackward(model_.UnitsOf(chunk));
  reporter_.phases.Stop(&PhaseTimes::backward_allreduce);
  reporter_.phases.Stop(&PhaseTimes::backward);
  step_.state.current.backward_is_unfinished = false;
  if (delayed != nullptr) model_.sharded->DelayGradients(nullptr);
  step_.state.current.backward_is_latest = true;
  reporter_.memory.Mark("backward");
}

void Executor::TakeGradients(int chunk, double arrival_factor, zero::DelayedGradients* delayed,
                             const std::function<void()>& backward) {
  BeginGradients(arrival_factor, delayed);
  try {
    backward();
  } catch (...) {
    model_.sharded->AcceptGradients(false);
    throw;
  }
  EndGradients(chunk, delayed);
}

void Executor::BringWeightGradients(MicroBatchState* state, int chunk) {
  ThrowIfError(model_.ReloadStates());
  step_.state.current.backward_is_latest = false;  // of another micro-batch
  model_.sharded->EndGradients(BringsLastGradients() ? zero::GradientEnd::kAsSharded
                                                     : ChooseEndAmongOthers(*model_.sharded));
  model_.sharded->ScaleGradients(1.0);
  reporter_.phases.Start(&PhaseTimes::backward);
  reporter_.phases.Start(&PhaseTimes::backward_inner);
  model_.sharded->BringGradients(model_.UnitsOf(chunk), &state->delayed);
  reporter_.phases.Stop(&PhaseTimes::backward_inner);
  reporter_.phases.Stop(&PhaseTimes::backward);
  if (chunk == 0) ++step_.state.current.micro_batches;
}

void Executor::Backward(const at::Tensor& loss, bool scale_wrt_gas, bool retain_graph) {
  BackwardFromLoss(loss, scale_wrt_gas, /*chunk=*/0, /*delayed=*/nullptr, retain_graph);
  EndOrOpenMicroBatch();
}

void Executor::EndOrOpenMicroBatch() {
  StepInProgress& current = step_.state.current;
  if (step_.micro_batch_end == MicroBatchEnd::kStep) {
    current.is_open = true;
  } else {
    ++current.micro_batches;
  }
}

void Executor::BackwardFromLoss(const at::Tensor& loss, bool scale_wrt_gas, int chunk,
                                zero::DelayedGradients* delayed, bool retain_graph) {
  ThrowIfError(model_.ReloadStates());
  const double weight = scale_wrt_gas ? step_.state.current.FindWeight(loss) : 1.0;
  const double scale = step_.backward_scale(scale_wrt_gas) * weight;
  const double factor = FindArrivalFactor(loss, scale);
  step_.state.current.losses.push_back({loss.detach(), scale_wrt_gas, weight});
  TakeGradients(chunk, factor, delayed,
                [&] { loss.backward(at::full_like(loss, scale / factor), retain_graph); });
}

void Executor::BeginUserBackward(const at::Tensor& loss) {
  TORCH_CHECK(!config_.fp16.enabled,
              "loss.backward() does not apply fp16's loss scale: call engine.backward(loss)");
  ThrowIfError(model_.ReloadStates());
  step_.state.current.losses.push_back({loss, /*scale_wrt_gas=*/true, /*weight=*/1.0});
  BeginGradients(step_.backward_scale(/*scale_wrt_gas=*/true), /*delayed=*/nullptr);
}

void Executor::EndUserBackward() {
  EndGradients(/*chunk=*/0, /*delayed=*/nullptr);
  EndOrOpenMicroBatch();
}

Status Executor::Reduce() {
  DS_RETURN_IF_ERROR(model_.CheckNotGathered());
  if (step_.state.local_gradients) {
    return FailedPreconditionError(
        "step() inside the scope of no_sync() or coalesce_grad_reduction(): end the scope first");
  }
  step_.state.latest_was_applied = false;
  step_.state.current.EndMicroBatch();
  if (!step_.IsUpdateDue()) return OkStatus();
  DS_RETURN_IF_ERROR(step_.rates.CheckCanResume(step_.state.counts.scheduled_updates()));
  reporter_.phases.Start(&PhaseTimes::backward);
  reporter_.phases.Start(&PhaseTimes::backward_allreduce);
  DS_RETURN_IF_ERROR(update_.ReduceGradientsOnce());
  reporter_.phases.Stop(&PhaseTimes::backward_allreduce);
  reporter_.phases.Stop(&PhaseTimes::backward);
  return OkStatus();
}

StatusOr<StepResult> Executor::Step() {
  DS_RETURN_IF_ERROR(CheckGradients(step_.state.current, *model_.sharded));
  if (!step_.IsUpdateDue()) return StepResult{};
  reporter_.phases.Start(&PhaseTimes::step);
  auto result = update_.Finish();
  reporter_.phases.Stop(&PhaseTimes::step);
  if (result.ok()) reporter_.phases.EndStep();
  reporter_.memory.Mark("step");
  if (result.ok())
    DS_RETURN_IF_ERROR(reporter_.WriteMonitors(config_, *result, step_.state.counts.samples));
  return result;
}

// Runs the backward of one chunk and releases the tensors saved for it.
void Executor::RunBackward(MicroBatchState* state, const pipeline::Task& task) {
  // The latest backward may be of another micro-batch, if the program has consecutive backward
  // passes. From here on this micro-batch is in progress.
  step_.state.current.backward_is_latest = false;
  const bool is_full_backward = task.kind == pipeline::Task::Kind::kBackward;
  zero::DelayedGradients* const delayed = is_full_backward ? nullptr : &state->delayed;
  if (const at::Tensor loss = std::exchange(state->loss, {}); loss.defined()) {
    // The gradients would arrive divided by a factor, and those sent to the previous stage would
    // stay divided.
    TORCH_CHECK(state->received.empty() || loss.scalar_type() != at::kHalf,
                "the last stage's loss is in fp16, which ends before loss scales do: have its last "
                "block return it in fp32");
    return BackwardFromLoss(loss, /*scale_wrt_gas=*/true, task.chunk, delayed);
  }
  ThrowIfError(model_.ReloadStates());
  std::vector<at::Tensor> roots, gradients;
  for (const auto& [name, gradient] : std::exchange(state->gradients, {})) {
    roots.push_back(state->sent.at(name));
    gradients.push_back(gradient);
  }
  state->sent.clear();
  TakeGradients(task.chunk, /*arrival_factor=*/1.0, delayed, [&] {
    if (!roots.empty()) torch::autograd::backward(roots, gradients);  // otherwise all is frozen
  });
}

std::optional<Bundle> Executor::RunThroughStages(Bundle bundle) {
  if (!topology_.channels) return RunModel(std::move(bundle));
  BeginMicroBatch(&bundle);
  StageChannels& channels = *topology_.channels;
  const pipeline::VirtualStages& virtual_stages = topology_.virtual_stages;
  const int stage = topology_.stage();
  NamedTensors activations;  // of the previous virtual stage
  for (int chunk = 0; chunk < virtual_stages.chunks; ++chunk) {
    const int virtual_stage = virtual_stages.At({stage, chunk});
    const int before =
        virtual_stage == 0 ? stage : virtual_stages.LocationOf(virtual_stage - 1).stage;
    if (before != stage) activations = channels.ReceiveActivations(before);
    Bundle input = bundle;
    PutActivations(activations, &input);
    if (virtual_stage + 1 == virtual_stages.count()) return RunToLoss(std::move(input), chunk);
    activations = TakeActivations(RunChunk(std::move(input), chunk));
    const int next = virtual_stages.LocationOf(virtual_stage + 1).stage;
    if (next == stage) continue;
    channels.AwaitSends();  // no stage runs ahead by more than one micro-batch
    channels.SendActivations(next, activations);
  }
  return std::nullopt;
}

StatusOr<StepResult> Executor::RunStep(const BatchSource& next_batch) {
  const auto micro_batches = static_cast<int>(step_.batch.gradient_accumulation_steps);
  if (!topology_.channels) return Run(pipeline::PlanStep(micro_batches), next_batch);
  const auto& [kind, stages, chunks] = topology_.virtual_stages;
  const pipeline::PipelineShape shape{
      .stages = stages, .chunks = chunks, .micro_batches = micro_batches};
  DS_ASSIGN_OR_RETURN(const auto schedule, pipeline::PipelineSchedule::Create(kind, shape));
  const auto programs = PlanStagePrograms(schedule);
  return Run(programs[static_cast<std::size_t>(topology_.stage())], next_batch,
             &*topology_.channels);
}

StatusOr<StepResult> Executor::Run(const pipeline::StageProgram& program,
                                   const BatchSource& next_batch, StageChannels* channels) {
  DS_RETURN_IF_ERROR(CheckStageProgram(program));
  DS_RETURN_IF_ERROR(CheckIsBuilt(program, topology_.virtual_stages.chunks, channels != nullptr));
  return StageRun(*this, next_batch, channels).Run(program);
}

}  // namespace ds::engine
