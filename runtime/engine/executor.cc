#include "runtime/engine/executor.h"

#include <ATen/ops/full_like.h>

#include <torch/csrc/autograd/autograd.h>
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/device/autocast_scope.h"
#include "runtime/engine/engine_parts.h"
#include "runtime/engine/executor_parts.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/models/decoder/expert_load.h"
#include "runtime/zero/undeclared_reads.h"

namespace ds::engine {
namespace {

Bundle LeaveBlock(zero::ShardedModel& sharded, int index, Bundle bundle) {
  std::vector<at::Tensor> tensors = TakeDifferentiable(&bundle);
  PutDifferentiable(sharded.LeaveForward(index, std::move(tensors)), &bundle);
  return bundle;
}

activation::RecomputeOptions MakeRecomputeOptions(EngineParts& parts, int block) {
  const config::ActivationCheckpointingConfig& config = parts.config.activation_checkpointing;
  activation::RecomputeOptions options{.keep_on_host = config.cpu_checkpointing,
                                       .synchronize = config.synchronize_checkpoint_boundary,
                                       .clock = parts.blocks.clock};
  if (config.profile) options.times = &parts.blocks.recompute_times[block];
  return options;
}

// Inputs of blocks are equal on all tensor ranks. Inputs of a block's parts, such as attention, are
// not.
activation::RecomputeOptions MakeBlockOptions(EngineParts& parts, int block) {
  activation::RecomputeOptions options = MakeRecomputeOptions(parts, block);
  if (parts.config.activation_checkpointing.partition_activations) {
    options.cut_among = FindTensorCommunicator(parts.mesh, *parts.sharded->context().groups.all);
    if (parts.blocks.kept_buffer) options.buffer = &*parts.blocks.kept_buffer;
  }
  return options;
}

Bundle RunBlock(EngineParts& parts, int index, Bundle bundle) {
  Block& block = parts.model->block(index);
  if (parts.blocks.mlp_tiles > 1) {
    bundle.mlp_tiles = {.count = parts.blocks.mlp_tiles,
                        .recompute = MakeRecomputeOptions(parts, index)};
    bundle.mlp_tiles.recompute.trains = TrainsParameters(block);
  }
  bundle.keeper = &parts.blocks.keeper;
  const BlockList& model = *parts.model;
  if (config::IsRecomputed(parts.blocks.recompute, model.index_in_model(index),
                           model.model_size())) {
    return RecomputeBlock(block, std::move(bundle), MakeBlockOptions(parts, index));
  }
  if (parts.blocks.recompute.kind == config::RecomputeChoice::Kind::kAttention) {
    bundle.recompute_attention = MakeRecomputeOptions(parts, index);
  }
  return block.forward(std::move(bundle));
}

// Adds the parameters read without declaration to the error: LibTorch only reports an operator
// without storage.
Bundle RunBlockWatched(EngineParts& parts, int index, Bundle bundle) {
  if (!parts.sharded->context().sharding.parameters) {
    return RunBlock(parts, index, std::move(bundle));
  }
  const zero::UndeclaredReads reads(*parts.sharded, index);
  const auto check = [&] {
    const std::string found = reads.Describe();
    TORCH_CHECK(found.empty(), found);
  };
  try {
    bundle = RunBlock(parts, index, std::move(bundle));
  } catch (const c10::Error&) {
    check();
    throw;
  }
  check();
  return bundle;
}

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
std::int64_t CountRandomPlaces(const EngineParts& parts, std::int64_t samples) {
  return std::max(samples, parts.config.batch.train_micro_batch_size_per_gpu);
}

// Returns the position of the next micro-batch, of `samples` samples, in the random streams. It
// depends on the samples' position in the step only, not on ranks and micro-batches. Unless the
// position was set, micro-batches of a step do not overlap if those at the same index are equally
// large on all ranks, or if none is larger than configured.
RandomPlace FindRandomPlace(const EngineParts& parts, std::int64_t samples) {
  const topology::Member reader =
      parts.mesh.MemberOf(parts.sharded->context().groups.all->rank(), topology::kDataAxes);
  const std::uint64_t of_step = ExtendKey(ExtendKey(parts.blocks.seed, "step"),
                                          static_cast<std::uint64_t>(parts.step.counts.finished));
  const std::int64_t counted = parts.step.current.random_places * reader.count +
                               reader.index * CountRandomPlaces(parts, samples);
  return {.key = of_step, .first_sample = parts.step.current.next_place.value_or(counted)};
}

// Returns whether this pass produces the last gradients of the step. Unknown with several chunks,
// because chunks of different micro-batches interleave.
bool BringsLastGradients(const EngineParts& parts) {
  return parts.virtual_stages.chunks == 1 && parts.step.IsInLastMicroBatch(parts.accumulation());
}

// Returns the handling of sharded gradients while others are still to come.
zero::GradientEnd ChooseEndAmongOthers(const EngineParts& parts) {
  const bool adds_up = parts.sharded->context().windows.gradients.whole_step;
  return adds_up ? zero::GradientEnd::kHeld : zero::GradientEnd::kAsSharded;
}

// Chooses when gradients are reduced. Unsharded gradients are reduced as they complete in the last
// backward pass, unless the update takes this rank's own gradients.
zero::GradientEnd ChooseGradientEnd(const EngineParts& parts) {
  if (parts.step.local_gradients) return zero::GradientEnd::kHeld;
  if (!BringsLastGradients(parts)) return ChooseEndAmongOthers(parts);
  if (!parts.optimizer->TakesMeans(parts.step.counts.applied + 1)) {
    return zero::GradientEnd::kAsSharded;
  }
  const bool updates = parts.sharded->context().tiers.updates_in_backward;
  return updates ? zero::GradientEnd::kUpdate : zero::GradientEnd::kLast;
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

// Lets gradients arrive while it lives.
class AcceptedGradients {
 public:
  explicit AcceptedGradients(zero::ShardedModel& model) : model_(model) {
    model_.AcceptGradients(true);
  }
  ~AcceptedGradients() { model_.AcceptGradients(false); }
  AcceptedGradients(const AcceptedGradients&) = delete;
  AcceptedGradients& operator=(const AcceptedGradients&) = delete;

 private:
  zero::ShardedModel& model_;
};

Status CheckGradientsArrived(const zero::ShardedModel& model) {
  const std::string stray = model.FindStrayGradient();
  if (stray.empty()) return OkStatus();
  return FailedPreconditionError(
      "the gradient in .grad of parameter " + stray +
      " has not come from Engine::backward, and would not be trained on: "
      "reset .grad");
}

// Used in functions that return no status.
void ThrowIfError(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

}  // namespace

void Executor::BeginMicroBatch(Bundle* bundle) {
  const std::int64_t samples = models::CountSamples(bundle->batch);
  StepInProgress& current = parts_.step.current;
  bundle->random = FindRandomPlace(parts_, samples);
  current.next_place.reset();
  bundle->loss_scale = parts_.backward_scale(/*scale_wrt_gas=*/true);
  bundle->loss_unit = parts_.loss_unit();
  if (parts_.config.fp16.enabled && parts_.config.fp16.auto_cast) CastInputs(*bundle);
  if (!c10::GradMode::is_enabled()) return;
  parts_.phases.EndMicroBatch();
  const at::Tensor& labels_or_none = bundle->tensor("labels");
  const std::int64_t labels = labels_or_none.defined() ? labels_or_none.numel() : 0;
  current.samples += samples;
  current.tokens += labels;
  current.most_labels = std::max(current.most_labels, labels);
  current.random_places += CountRandomPlaces(parts_, samples);
}

Bundle Executor::RunChunk(Bundle bundle, int chunk) {
  ThrowIfError(parts_.ReloadStates());
  zero::ShardedModel& sharded = *parts_.sharded;
  const bool records = c10::GradMode::is_enabled();
  if (records) parts_.step.current.backward_is_latest = false;
  const auto& buffered = parts_.config.activation_checkpointing.buffered_parts;
  if (records && buffered) parts_.blocks.kept_buffer.emplace(*buffered);
  const precision::AutocastScope autocast(sharded.context().dtypes.autocast,
                                          sharded.context().device);
  const models::BlockRange blocks = parts_.model->chunk(chunk);
  if (records) parts_.phases.Start(&PhaseTimes::forward);
  sharded.BeginForward(zero::UnitRange{blocks.first, blocks.end});
  for (int i = blocks.first; i < blocks.end; ++i) {
    sharded.Enter(i);
    bundle.random.block = parts_.model->index_in_model(i);
    bundle = parts_.blocks.reads_are_declared ? RunBlock(parts_, i, std::move(bundle))
                                              : RunBlockWatched(parts_, i, std::move(bundle));
    bundle = LeaveBlock(sharded, i, std::move(bundle));
  }
  sharded.EndForward();
  parts_.blocks.kept_buffer.reset();
  if (blocks.end == parts_.model->size()) parts_.blocks.reads_are_declared = true;
  if (records) parts_.phases.Stop(&PhaseTimes::forward);
  if (records) parts_.memory.Mark("forward");
  return bundle;
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
    if (routes != bundle.extras.end()) parts_.step.current.AddExpertRoutes(routes->second);
    parts_.step.current.returned.push_back(
        {decltype(ReturnedLoss::loss)(bundle.loss.getIntrusivePtr()), weight});
  }
  return bundle.loss;
}

at::Tensor Executor::Forward(Bundle bundle) {
  BeginMicroBatch(&bundle);
  return ForwardToLoss(std::move(bundle), /*chunk=*/0);
}

void Executor::TakeGradients(int chunk, double arrival_factor, zero::DelayedGradients* delayed,
                             const std::function<void()>& backward) {
  const zero::GradientEnd end =
      delayed != nullptr ? zero::GradientEnd::kLater : ChooseGradientEnd(parts_);
  parts_.sharded->EndGradients(end);
  parts_.sharded->ScaleGradients(arrival_factor);
  if (end == zero::GradientEnd::kUpdate) ThrowIfError(parts_.BeginUpdate());
  if (delayed != nullptr) parts_.sharded->DelayGradients(delayed);
  parts_.phases.Start(&PhaseTimes::backward);
  parts_.phases.Start(&PhaseTimes::backward_inner);
  {
    const AcceptedGradients accepted(*parts_.sharded);
    backward();
  }
  parts_.phases.Stop(&PhaseTimes::backward_inner);
  const models::BlockRange blocks = parts_.model->chunk(chunk);
  parts_.phases.Start(&PhaseTimes::backward_allreduce);
  parts_.sharded->EndBackward({blocks.first, blocks.end});
  parts_.phases.Stop(&PhaseTimes::backward_allreduce);
  parts_.phases.Stop(&PhaseTimes::backward);
  if (delayed != nullptr) {
    parts_.sharded->DelayGradients(nullptr);
  } else if (chunk == 0) {  // the last chunk in backward order
    ++parts_.step.current.micro_batches;
  }
  parts_.step.current.backward_is_latest = true;
  parts_.memory.Mark("backward");
}

void Executor::BringWeightGradients(Passage* passage, int chunk) {
  ThrowIfError(parts_.ReloadStates());
  parts_.step.current.backward_is_latest = false;  // of another micro-batch
  parts_.sharded->EndGradients(BringsLastGradients(parts_) ? zero::GradientEnd::kAsSharded
                                                           : ChooseEndAmongOthers(parts_));
  parts_.sharded->ScaleGradients(1.0);
  const models::BlockRange blocks = parts_.model->chunk(chunk);
  parts_.phases.Start(&PhaseTimes::backward);
  parts_.phases.Start(&PhaseTimes::backward_inner);
  parts_.sharded->BringGradients({blocks.first, blocks.end}, &passage->delayed);
  parts_.phases.Stop(&PhaseTimes::backward_inner);
  parts_.phases.Stop(&PhaseTimes::backward);
  if (chunk == 0) ++parts_.step.current.micro_batches;
}

void Executor::Backward(const at::Tensor& loss, bool scale_wrt_gas) {
  BackwardFromLoss(loss, scale_wrt_gas, /*chunk=*/0, /*delayed=*/nullptr);
}

void Executor::BackwardFromLoss(const at::Tensor& loss, bool scale_wrt_gas, int chunk,
                                zero::DelayedGradients* delayed) {
  ThrowIfError(parts_.ReloadStates());
  const double weight = scale_wrt_gas ? parts_.step.current.FindWeight(loss) : 1.0;
  const double scale = parts_.backward_scale(scale_wrt_gas) * weight;
  const double factor = FindArrivalFactor(loss, scale);
  parts_.step.current.losses.push_back({loss.detach(), scale_wrt_gas, weight});
  TakeGradients(chunk, factor, delayed,
                [&] { loss.backward(at::full_like(loss, scale / factor)); });
}

Status Executor::Reduce() {
  DS_RETURN_IF_ERROR(parts_.CheckNotGathered());
  if (parts_.step.local_gradients) {
    return FailedPreconditionError(
        "step() inside the scope of no_sync() or coalesce_grad_reduction(): end the scope first");
  }
  parts_.step.latest_was_applied = false;
  parts_.step.current.backward_is_latest = false;
  if (!parts_.step.IsUpdateDue(parts_.accumulation())) return OkStatus();
  DS_RETURN_IF_ERROR(parts_.rates.CheckGoesOn(parts_.step.counts.applied));
  parts_.phases.Start(&PhaseTimes::backward);
  parts_.phases.Start(&PhaseTimes::backward_allreduce);
  DS_RETURN_IF_ERROR(parts_.ReduceGradientsOnce());
  parts_.phases.Stop(&PhaseTimes::backward_allreduce);
  parts_.phases.Stop(&PhaseTimes::backward);
  return OkStatus();
}

StatusOr<StepResult> Executor::Step() {
  if (!parts_.step.IsUpdateDue(parts_.accumulation())) return StepResult{};
  DS_RETURN_IF_ERROR(CheckGradientsArrived(*parts_.sharded));
  parts_.phases.Start(&PhaseTimes::step);
  auto result = FinishStep(parts_);
  parts_.phases.Stop(&PhaseTimes::step);
  if (result.ok()) parts_.phases.EndStep();
  parts_.memory.Mark("step");
  if (result.ok()) DS_RETURN_IF_ERROR(parts_.WriteMonitors(*result));
  return result;
}

// Runs the backward of one chunk and releases the tensors saved for it.
void Executor::RunBackward(Passage* passage, const pipeline::Task& task) {
  // The latest backward may be of another micro-batch, if the program has consecutive backward
  // passes. From here on this micro-batch is in progress.
  parts_.step.current.backward_is_latest = false;
  const bool is_whole = task.kind == pipeline::Task::Kind::kBackward;
  zero::DelayedGradients* const delayed = is_whole ? nullptr : &passage->delayed;
  if (const at::Tensor loss = std::exchange(passage->loss, {}); loss.defined()) {
    // The gradients would arrive divided by a factor, and those sent to the previous stage would
    // stay divided.
    TORCH_CHECK(passage->received.empty() || loss.scalar_type() != at::kHalf,
                "the last stage's loss is in fp16, which ends before loss scales do: have its last "
                "block return it in fp32");
    return BackwardFromLoss(loss, /*scale_wrt_gas=*/true, task.chunk, delayed);
  }
  ThrowIfError(parts_.ReloadStates());
  std::vector<at::Tensor> roots, gradients;
  for (const auto& [name, gradient] : std::exchange(passage->gradients, {})) {
    roots.push_back(passage->sent.at(name));
    gradients.push_back(gradient);
  }
  passage->sent.clear();
  TakeGradients(task.chunk, /*arrival_factor=*/1.0, delayed, [&] {
    if (!roots.empty()) torch::autograd::backward(roots, gradients);  // otherwise all is frozen
  });
}

std::optional<Bundle> Executor::RunThroughStages(Bundle bundle) {
  if (!parts_.channels) return RunModel(std::move(bundle));
  BeginMicroBatch(&bundle);
  StageChannels& channels = *parts_.channels;
  const pipeline::VirtualStages& places = parts_.virtual_stages;
  const int stage = parts_.stage();
  NamedTensors activations;  // of the previous virtual stage
  for (int chunk = 0; chunk < places.chunks; ++chunk) {
    const int place = places.At({stage, chunk});
    const int before = place == 0 ? stage : places.PlaceOf(place - 1).stage;
    if (before != stage) activations = channels.ReceiveActivations(before);
    Bundle input = bundle;
    PutActivations(activations, &input);
    if (place + 1 == places.count()) return RunToLoss(std::move(input), chunk);
    activations = TakeActivations(RunChunk(std::move(input), chunk));
    const int next = places.PlaceOf(place + 1).stage;
    if (next == stage) continue;
    channels.AwaitSends();  // no stage runs ahead by more than one micro-batch
    channels.SendActivations(next, activations);
  }
  return std::nullopt;
}

StatusOr<StepResult> Executor::RunStep(const BatchSource& next_batch) {
  const auto micro_batches = static_cast<int>(parts_.config.batch.gradient_accumulation_steps);
  if (!parts_.channels) return Run(pipeline::PlanStep(micro_batches), next_batch);
  const auto& [kind, stages, chunks] = parts_.virtual_stages;
  const pipeline::PipelineShape shape{
      .stages = stages, .chunks = chunks, .micro_batches = micro_batches};
  DS_ASSIGN_OR_RETURN(const auto schedule, pipeline::Schedule::Create(kind, shape));
  const auto programs = PlanStagePrograms(schedule);
  return Run(programs[static_cast<std::size_t>(parts_.stage())], next_batch, &*parts_.channels);
}

StatusOr<StepResult> Executor::Run(const pipeline::StageProgram& program,
                                   const BatchSource& next_batch, StageChannels* channels) {
  DS_RETURN_IF_ERROR(CheckStageProgram(program));
  DS_RETURN_IF_ERROR(CheckIsBuilt(program, parts_.virtual_stages.chunks, channels != nullptr));
  return StageRun(*this, next_batch, channels).Run(program);
}

}  // namespace ds::engine
