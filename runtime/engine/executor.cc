#include "runtime/engine/executor.h"

#include <ATen/ops/full_like.h>

#include <torch/csrc/autograd/autograd.h>
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/engine/engine_parts.h"
#include "runtime/engine/finish_step.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/engine/recompute_block.h"
#include "runtime/models/expert_load.h"
#include "runtime/precision/autocast_scope.h"
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

// Blocks are given the same on all tensor ranks; parts of them, such as attention, are not.
activation::RecomputeOptions MakeBlockOptions(EngineParts& parts, int block) {
  activation::RecomputeOptions options = MakeRecomputeOptions(parts, block);
  if (parts.config.activation_checkpointing.partition_activations) {
    options.cut_among = FindTensorCommunicator(parts.mesh, *parts.sharded->context().groups.all);
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

// LibTorch says of an operator that finds no bytes no more than that.
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

// The places that a micro-batch of so many samples takes on each rank.
std::int64_t CountRandomPlaces(const EngineParts& parts, std::int64_t samples) {
  return std::max(samples, parts.config.batch.train_micro_batch_size_per_gpu);
}

// Finds where the next micro-batch of so many samples stands: by its place in the step, whatever
// ranks and micro-batches it is cut into. No two micro-batches of a step share a place as long as
// those of one turn are equal on all ranks, or none is larger than configured.
RandomPlace FindRandomPlace(const EngineParts& parts, std::int64_t samples) {
  const topology::Member reader =
      parts.mesh.MemberOf(parts.sharded->context().groups.all->rank(), topology::kDataAxes);
  const std::uint64_t of_step = ExtendKey(ExtendKey(parts.blocks.seed, "step"),
                                          static_cast<std::uint64_t>(parts.step.counts.finished));
  return {.key = of_step,
          .first_sample = parts.step.current.random_places * reader.count +
                          reader.index * CountRandomPlaces(parts, samples)};
}

// Whole gradients are reduced as they come when nothing is added to them any more, unless the
// update takes this rank's own.
zero::GradientEnd ChooseGradientEnd(const EngineParts& parts) {
  if (parts.step.local_gradients) return zero::GradientEnd::kHeld;
  const bool is_last = parts.step.IsInLastMicroBatch(parts.accumulation()) &&
                       parts.optimizer->TakesMeans(parts.step.counts.applied + 1);
  if (!is_last) return zero::GradientEnd::kAsSharded;
  const bool updates = parts.sharded->context().tiers.updates_in_backward;
  return updates ? zero::GradientEnd::kUpdate : zero::GradientEnd::kLast;
}

bool Has(pipeline::Instruction::Kind kind, const pipeline::StageProgram& program) {
  return std::any_of(program.begin(), program.end(),
                     [&](const pipeline::Instruction& each) { return each.kind == kind; });
}

// Refuses what a program may ask for and the executor does not do.
Status CheckIsBuilt(const pipeline::StageProgram& program, bool has_channels) {
  using Kind = pipeline::Instruction::Kind;
  using TaskKind = pipeline::Task::Kind;
  for (const auto& [kind, task, peer] : program) {
    if (task.chunk > 0) return UnimplementedError("a stage of several chunks is not built");
    const bool computes = kind == Kind::kCompute;
    if (computes && task.kind != TaskKind::kForward && task.kind != TaskKind::kBackward) {
      return UnimplementedError("a backward pass in two parts (zb-h1, zb-v) is not built");
    }
    if (computes || kind == Kind::kReduce || kind == Kind::kStep) continue;
    if (!has_channels) {
      return InvalidArgumentError("the step has messages for or from stage " +
                                  std::to_string(peer) + ", and no channels for them");
    }
  }
  return OkStatus();
}

// The tensors that a bundle takes from block to block, by their places in it.
constexpr std::string_view kHidden = "hidden", kExtras = "extras/";

NamedTensors TakeActivations(Bundle bundle) {
  NamedTensors tensors;
  if (bundle.hidden.defined()) tensors.emplace(kHidden, bundle.hidden);
  for (const auto& [name, tensor] : bundle.extras) {
    if (tensor.defined()) tensors.emplace(std::string(kExtras) + name, tensor);
  }
  return tensors;
}

void PutActivations(const NamedTensors& tensors, Bundle* bundle) {
  for (const auto& [name, tensor] : tensors) {
    at::Tensor& place =
        name == kHidden ? bundle->hidden : bundle->extras[name.substr(kExtras.size())];
    place = tensor;
  }
}

// Serves where there is nothing to return a status in.
void ThrowIfError(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

}  // namespace

Bundle Executor::RunBlocks(Bundle bundle) {
  ThrowIfError(parts_.ReloadStates());
  zero::ShardedModel& sharded = *parts_.sharded;
  if (c10::GradMode::is_enabled()) {
    parts_.step.current.samples += models::CountSamples(bundle.batch);
    const at::Tensor& labels_or_none = bundle.tensor("labels");
    const std::int64_t labels = labels_or_none.defined() ? labels_or_none.numel() : 0;
    parts_.step.current.tokens += labels;
    parts_.step.current.most_labels = std::max(parts_.step.current.most_labels, labels);
    parts_.step.current.backward_is_latest = false;
  }
  if (parts_.config.fp16.enabled && parts_.config.fp16.auto_cast) CastInputs(bundle);
  const precision::AutocastScope autocast(sharded.context().dtypes.autocast,
                                          sharded.context().device);
  bundle.loss_scale = parts_.backward_scale(/*scale_wrt_gas=*/true);
  bundle.loss_unit = parts_.loss_unit();
  const std::int64_t samples = models::CountSamples(bundle.batch);
  bundle.random = FindRandomPlace(parts_, samples);
  sharded.BeginForward();
  for (int i = 0; i < parts_.model->size(); ++i) {
    sharded.Enter(i);
    bundle.random.block = parts_.model->index_in_model(i);
    bundle = parts_.blocks.reads_are_declared ? RunBlock(parts_, i, std::move(bundle))
                                              : RunBlockWatched(parts_, i, std::move(bundle));
    bundle = LeaveBlock(sharded, i, std::move(bundle));
  }
  sharded.EndForward();
  parts_.blocks.reads_are_declared = true;
  if (c10::GradMode::is_enabled()) {
    parts_.step.current.random_places += CountRandomPlaces(parts_, samples);
    parts_.memory.Mark("forward");
  }
  return bundle;
}

Bundle Executor::RunModel(Bundle bundle) {
  bundle = RunBlocks(std::move(bundle));
  TORCH_CHECK(bundle.loss.defined() && bundle.loss.numel() == 1,
              "the model's last block has set no loss (a scalar): are there labels?");
  return bundle;
}

at::Tensor Executor::Forward(Bundle bundle) {
  bundle = RunModel(std::move(bundle));
  if (c10::GradMode::is_enabled()) {
    const double weight = bundle.loss_count ? *bundle.loss_count / bundle.loss_unit : 1.0;
    const auto routes = bundle.extras.find(models::kExpertRoutes);
    if (routes != bundle.extras.end()) parts_.step.current.AddExpertRoutes(routes->second);
    parts_.step.current.returned.push_back(
        {decltype(ReturnedLoss::loss)(bundle.loss.getIntrusivePtr()), weight});
  }
  return bundle.loss;
}

void Executor::TakeGradients(double arrival_factor, const std::function<void()>& backward) {
  const zero::GradientEnd end = ChooseGradientEnd(parts_);
  parts_.sharded->EndGradients(end);
  parts_.sharded->ScaleGradients(arrival_factor);
  if (end == zero::GradientEnd::kUpdate) ThrowIfError(parts_.BeginUpdate());
  backward();
  parts_.sharded->EndBackward();
  ++parts_.step.current.micro_batches;
  parts_.step.current.backward_is_latest = true;
  parts_.memory.Mark("backward");
}

void Executor::Backward(const at::Tensor& loss, bool scale_wrt_gas) {
  ThrowIfError(parts_.ReloadStates());
  const double weight = scale_wrt_gas ? parts_.step.current.FindWeight(loss) : 1.0;
  const double scale = parts_.backward_scale(scale_wrt_gas) * weight;
  const double factor = FindArrivalFactor(loss, scale);
  parts_.step.current.losses.push_back({loss.detach(), scale_wrt_gas, weight});
  TakeGradients(factor, [&] { loss.backward(at::full_like(loss, scale / factor)); });
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
  return parts_.ReduceGradientsOnce();
}

StatusOr<StepResult> Executor::Step() {
  if (!parts_.step.IsUpdateDue(parts_.accumulation())) return StepResult{};
  auto result = FinishStep(parts_);
  parts_.memory.Mark("step");
  return result;
}

// What the backward needs of the forward, and what other stages have sent for it or will get of it.
struct Executor::MicroBatch {
  NamedTensors received;   // activations of the stage before
  at::Tensor loss;         // of the last stage
  NamedTensors sent;       // activations for the stage behind
  NamedTensors gradients;  // of these
};

void Executor::RunForward(Bundle batch, bool is_last_stage, MicroBatch* micro_batch) {
  PutActivations(micro_batch->received, &batch);
  if (is_last_stage) {
    micro_batch->loss = Forward(std::move(batch));
  } else {
    micro_batch->sent = TakeActivations(RunBlocks(std::move(batch)));
  }
}

// What has been kept for it goes with it.
void Executor::RunBackward(MicroBatch* micro_batch) {
  if (const at::Tensor loss = std::exchange(micro_batch->loss, {}); loss.defined()) {
    // Its gradients would arrive divided, and those that go on to the stage before stay so.
    TORCH_CHECK(micro_batch->received.empty() || loss.scalar_type() != at::kHalf,
                "the last stage's loss is in fp16, which ends before loss scales do: have its last "
                "block return it in fp32");
    return Backward(loss, /*scale_wrt_gas=*/true);
  }
  ThrowIfError(parts_.ReloadStates());
  std::vector<at::Tensor> roots, gradients;
  for (const auto& [name, gradient] : std::exchange(micro_batch->gradients, {})) {
    roots.push_back(micro_batch->sent.at(name));
    gradients.push_back(gradient);
  }
  micro_batch->sent.clear();
  TakeGradients(/*arrival_factor=*/1.0, [&] {
    if (!roots.empty()) torch::autograd::backward(roots, gradients);  // else all is frozen
  });
}

std::optional<Bundle> Executor::RunThroughStages(Bundle bundle) {
  if (!parts_.channels) return RunModel(std::move(bundle));
  StageChannels& channels = *parts_.channels;
  const int stage = parts_.stage();
  if (stage > 0) PutActivations(channels.ReceiveActivations(stage - 1), &bundle);
  if (parts_.is_last_stage()) return RunModel(std::move(bundle));
  bundle = RunBlocks(std::move(bundle));
  channels.AwaitSends();  // no stage runs ahead by more than one micro-batch
  channels.SendActivations(stage + 1, TakeActivations(std::move(bundle)));
  return std::nullopt;
}

StatusOr<StepResult> Executor::RunStep(const BatchSource& next_batch) {
  const auto micro_batches = static_cast<int>(parts_.config.batch.gradient_accumulation_steps);
  if (!parts_.channels) return Run(pipeline::PlanStep(micro_batches), next_batch);
  const pipeline::PipelineShape shape{.stages = parts_.mesh.degrees().pipeline,
                                      .micro_batches = micro_batches};
  DS_ASSIGN_OR_RETURN(const auto schedule, pipeline::Schedule::Create(parts_.schedule, shape));
  const auto programs = PlanStagePrograms(schedule);
  return Run(programs[static_cast<std::size_t>(parts_.stage())], next_batch, &*parts_.channels);
}

StatusOr<StepResult> Executor::Run(const pipeline::StageProgram& program,
                                   const BatchSource& next_batch, StageChannels* channels) {
  using Kind = pipeline::Instruction::Kind;
  DS_RETURN_IF_ERROR(CheckStageProgram(program));
  DS_RETURN_IF_ERROR(CheckIsBuilt(program, channels != nullptr));
  const bool is_last_stage = !Has(Kind::kSendActivation, program);
  std::map<int, MicroBatch> micro_batches;
  StepResult result;
  for (const auto& [kind, task, peer] : program) {
    MicroBatch& micro_batch = micro_batches[task.micro_batch];
    if (kind == Kind::kCompute && task.kind == pipeline::Task::Kind::kForward) {
      DS_ASSIGN_OR_RETURN(Bundle batch, next_batch());
      RunForward(std::move(batch), is_last_stage, &micro_batch);
    } else if (kind == Kind::kCompute) {
      RunBackward(&micro_batch);
    } else if (kind == Kind::kReduce) {
      DS_RETURN_IF_ERROR(Reduce());
    } else if (kind == Kind::kStep) {
      DS_ASSIGN_OR_RETURN(result, Step());
    } else {
      Move(kind, peer, *channels, &micro_batch);
    }
  }
  if (channels != nullptr) channels->AwaitSends();
  return result;
}

void Executor::Move(pipeline::Instruction::Kind kind, int peer, StageChannels& channels,
                    MicroBatch* micro_batch) {
  using Kind = pipeline::Instruction::Kind;
  switch (kind) {
    case Kind::kReceiveActivation:
      micro_batch->received = channels.ReceiveActivations(peer);
      return;
    case Kind::kSendActivation:
      return channels.SendActivations(peer, micro_batch->sent);
    case Kind::kReceiveGradient:
      micro_batch->gradients = channels.ReceiveGradients(peer, micro_batch->sent);
      return;
    case Kind::kSendGradient:
      return channels.SendGradients(peer, std::exchange(micro_batch->received, {}));
    case Kind::kCompute:
    case Kind::kReduce:
    case Kind::kStep:
      break;
  }
  DS_CHECK_MSG(false, "no message");
}

}  // namespace ds::engine
