#include "runtime/engine/stage_run.h"

#include <ATen/ops/zeros_like.h>

#include <torch/csrc/autograd/autograd.h>
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/engine/rank_topology.h"
#include "runtime/engine/step_context.h"
#include "runtime/engine/trained_model.h"

namespace ds::engine {
namespace {

constexpr std::string_view kHidden = "hidden", kExtras = "extras/";

// Converts the result of one virtual stage to the received tensors of the next one, on the same
// stage.
NamedTensors HandOn(const NamedTensors& sent) {
  NamedTensors received;
  for (const auto& [name, tensor] : sent) {
    received[name] = tensor.detach().set_requires_grad(tensor.requires_grad());
  }
  return received;
}

NamedTensors TakeGradientsOf(const NamedTensors& received) {
  NamedTensors gradients;
  for (const auto& [name, tensor] : received) {
    if (!tensor.requires_grad()) continue;
    gradients[name] = tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);
  }
  return gradients;
}

}  // namespace

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
    at::Tensor& slot =
        name == kHidden ? bundle->hidden : bundle->extras[name.substr(kExtras.size())];
    slot = tensor;
  }
}

StageRun::StageRun(Executor& executor, const BatchSource& next_batch, StageChannels* channels)
    : executor_(executor),
      next_batch_(next_batch),
      channels_(channels),
      virtual_stages_(channels != nullptr ? executor.topology_.virtual_stages
                                          : pipeline::VirtualStages()) {}

StageRun::MicroBatch& StageRun::FindMicroBatch(int number) {
  MicroBatch& micro_batch = micro_batches_[number];
  micro_batch.states.resize(static_cast<std::size_t>(virtual_stages_.chunks));
  return micro_batch;
}

MicroBatchState& StageRun::MicroBatchStateOf(const pipeline::Task& task) {
  return FindMicroBatch(task.micro_batch).states[static_cast<std::size_t>(task.chunk)];
}

// Runs the program in a window. If a step throws, the next step's window takes over its open state.
StatusOr<StepResult> StageRun::Run(const pipeline::StageProgram& program) {
  zero::ShardedModel& sharded = *executor_.model_.sharded;
  sharded.OpenWindow();
  auto result = RunInWindow(program);
  sharded.CloseWindow();
  return result;
}

StatusOr<StepResult> StageRun::RunInWindow(const pipeline::StageProgram& program) {
  using Kind = pipeline::Instruction::Kind;
  StepResult result;
  int open_chunks = virtual_stages_.chunks;
  for (const pipeline::Instruction& instruction : program) {
    if (instruction.kind == Kind::kCompute) {
      DS_RETURN_IF_ERROR(Compute(instruction.task));
    } else if (instruction.kind == Kind::kReduce) {
      // Once, after the last chunk's backward: the step's update is due only then.
      if (--open_chunks > 0) continue;
      executor_.model_.sharded->CloseWindow();
      DS_RETURN_IF_ERROR(executor_.Reduce());
    } else if (instruction.kind == Kind::kStep) {
      DS_ASSIGN_OR_RETURN(result, executor_.Step());
    } else {
      Move(instruction);
    }
  }
  if (channels_ != nullptr) channels_->AwaitSends();
  return result;
}

Status StageRun::Compute(const pipeline::Task& task) {
  using Kind = pipeline::Task::Kind;
  if (task.kind == Kind::kForward) return Forward(task);
  if (task.kind == Kind::kWeightGradient) {
    executor_.BringWeightGradients(&MicroBatchStateOf(task), task.chunk);
  } else {
    Backward(task);
  }
  return OkStatus();
}

Status StageRun::Forward(const pipeline::Task& task) {
  MicroBatch& micro_batch = FindMicroBatch(task.micro_batch);
  if (task.chunk == 0) {
    DS_ASSIGN_OR_RETURN(micro_batch.batch, next_batch_());
    executor_.BeginMicroBatch(&micro_batch.batch);
  }
  const bool is_last_chunk = task.chunk + 1 == virtual_stages_.chunks;
  Bundle bundle = is_last_chunk ? std::move(micro_batch.batch) : micro_batch.batch;
  MicroBatchState& state = micro_batch.states[static_cast<std::size_t>(task.chunk)];
  PutActivations(state.received, &bundle);
  const int stage = channels_ != nullptr ? executor_.topology_.stage() : 0;
  const int slot = virtual_stages_.At({stage, task.chunk});
  if (slot + 1 == virtual_stages_.count()) {
    state.loss = executor_.ForwardToLoss(std::move(bundle), task.chunk);
    return OkStatus();
  }
  state.sent = TakeActivations(executor_.RunChunk(std::move(bundle), task.chunk));
  if (const auto next = virtual_stages_.LocationOf(slot + 1); next.stage == stage) {
    micro_batch.states[static_cast<std::size_t>(next.chunk)].received = HandOn(state.sent);
  }
  return OkStatus();
}

// Runs the backward of a chunk and releases its state.
void StageRun::Backward(const pipeline::Task& task) {
  MicroBatch& micro_batch = FindMicroBatch(task.micro_batch);
  MicroBatchState& state = micro_batch.states[static_cast<std::size_t>(task.chunk)];
  executor_.RunBackward(&state, task);
  // The first chunk is the last in backward order. BringWeightGradients counts the others.
  if (task.kind == pipeline::Task::Kind::kBackward && task.chunk == 0) {
    ++executor_.step_.state.current.micro_batches;
  }
  if (channels_ == nullptr || task.chunk == 0) return;
  const int stage = executor_.topology_.stage();
  const auto before = virtual_stages_.LocationOf(virtual_stages_.At({stage, task.chunk}) - 1);
  if (before.stage != stage) return;
  micro_batch.states[static_cast<std::size_t>(before.chunk)].gradients =
      TakeGradientsOf(std::exchange(state.received, {}));
}

void StageRun::Move(const pipeline::Instruction& instruction) {
  using Kind = pipeline::Instruction::Kind;
  const int peer = instruction.peer;
  MicroBatchState& state = MicroBatchStateOf(instruction.task);
  switch (instruction.kind) {
    case Kind::kReceiveActivation:
      state.received = channels_->ReceiveActivations(peer);
      return;
    case Kind::kSendActivation:
      return channels_->SendActivations(peer, state.sent);
    case Kind::kReceiveGradient:
      state.gradients = channels_->ReceiveGradients(peer, state.sent);
      return;
    case Kind::kSendGradient:
      return channels_->SendGradients(peer, std::exchange(state.received, {}));
    case Kind::kCompute:
    case Kind::kReduce:
    case Kind::kStep:
      break;
  }
  DS_CHECK_MSG(false, "no message");
}

}  // namespace ds::engine
