#include "runtime/engine/engine.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/comm/mesh_groups.h"
#include "runtime/engine/build_engine.h"
#include "runtime/engine/engine_parts.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/make_mesh.h"

namespace ds::engine {
namespace {

// The axes of the ranks of a stage.
constexpr topology::AxisSet kStageAxes = topology::kGradientAxes.With(topology::Axis::kTensor);

// Returns whether the rank is the first of its stage, or the first with these experts.
bool IsFirstWith(const checkpoint::Placement& placement, const topology::Mesh& mesh, int rank) {
  const int asked = placement.expert ? mesh.ExpertGroupOf(rank).front() : rank;
  return mesh.MemberOf(asked, kStageAxes).index == 0;
}

// Returns the full tensor, without gradient, on the first rank of each stage and on the first ranks
// with other experts, if ranks along the tensor axis share it. The result on other ranks is
// undefined. Requires a parameter with a gathered local tensor. Collective of the mesh's ranks, all
// in `world`.
at::Tensor PutTogether(const zero::NamedParameter& parameter, const topology::Mesh& mesh,
                       comm::Communicator& world) {
  const at::Tensor local = parameter.tensor.detach();
  const checkpoint::Placement& placement = parameter.placement;
  const topology::AxisSet axes{topology::Axis::kTensor};
  const int first = mesh.GroupOf(world.rank(), axes).front();
  if (placement.boxes.empty() || !IsFirstWith(placement, mesh, first)) return local;
  const at::Tensor whole = at::zeros(placement.global_shape, local.options());
  const at::Tensor flat = whole.view({-1}), own = local.reshape({-1});
  for (const checkpoint::Stretch& stretch :
       checkpoint::FindStretches(placement.global_shape, {placement.boxes, 0, local.numel()})) {
    flat.narrow(0, stretch.global, stretch.count)
        .copy_(own.narrow(0, stretch.local, stretch.count));
  }
  // Each rank has zeros outside its part.
  comm::GroupOver(axes, "tensor parallelism", mesh, world)
      .Reduce(whole, /*root=*/0, comm::ReduceOp::kSum, parameter.name);
  return whole;
}

// Returns the optimizer's part of an engine's state; null if there is none.
nlohmann::json OptimizerStateOf(const nlohmann::json& state) {
  const auto of_optimizer = state.find("optimizer_state");
  return of_optimizer == state.end() ? nlohmann::json() : *of_optimizer;
}

// EngineState is the engine's part of checkpoints (contents: Engine::state).
class EngineState : public checkpoint::Stateful {
 public:
  // `parts` must outlive this object.
  explicit EngineState(EngineParts& parts) : parts_(parts) {}

  std::string_view state_name() const override { return "engine"; }
  Status CheckSavable() const override;
  void AddShards(std::vector<checkpoint::TensorShard>* shards) override;
  nlohmann::json State() const override;
  Status CheckState(const nlohmann::json& state) const override;
  void ExpectState(const nlohmann::json& state) override;
  Status LoadState(const nlohmann::json& state) override;

 private:
  EngineParts& parts_;
};

Status EngineState::CheckSavable() const {
  DS_RETURN_IF_ERROR(parts_.CheckNotGathered());
  return parts_.step.CheckBetweenSteps("a checkpoint is saved");
}

void EngineState::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  parts_.optimizer->Settle();
  parts_.optimizer->AddShards(shards);
  const zero::Context& context = parts_.sharded->context();
  parts_.buffers.MakeAlike(*context.groups.gradients);
  const topology::AxisSet holders =
      zero::Context::WholeCopyAxes({}).With(topology::Axis::kTensor);  // any rank with the module
  parts_.buffers.AddShards(context.ReplicaAlong(holders), shards);
}

nlohmann::json EngineState::State() const {
  nlohmann::json state = parts_.step.counts.State();
  state["loss_scaler"] = parts_.loss_scaler.State();
  state["optimizer"] = parts_.optimizer->optimizer_name();
  state["optimizer_state"] = parts_.optimizer->State();
  parts_.rates.AddTo(&state);
  return state;
}

Status EngineState::CheckState(const nlohmann::json& state) const {
  const auto theirs = state.find("optimizer");
  if (theirs == state.end() || !theirs->is_string()) {
    return DataLossError("the engine's state names no \"optimizer\"");
  }
  const std::string_view ours = parts_.optimizer->optimizer_name();
  if (*theirs == ours) return parts_.optimizer->CheckState(OptimizerStateOf(state));
  return InvalidArgumentError(
      "the checkpoint holds the state of optimizer " + theirs->get<std::string>() + ", which " +
      std::string(ours) +
      " cannot go on from: set optimizer.type and zero_optimization.zenflow "
      "as they were, or start from the saved model's weights");
}

void EngineState::ExpectState(const nlohmann::json& state) {
  parts_.optimizer->ExpectState(OptimizerStateOf(state));
}

Status EngineState::LoadState(const nlohmann::json& state) {
  DS_RETURN_IF_ERROR(parts_.ReloadStates());
  DS_RETURN_IF_ERROR(parts_.step.counts.LoadState(state));
  if (const auto scaler = state.find("loss_scaler");
      parts_.loss_scaler.dynamic() && scaler != state.end()) {
    DS_RETURN_IF_ERROR(parts_.loss_scaler.LoadState(*scaler));
  }
  DS_RETURN_IF_ERROR(parts_.rates.LoadState(state));
  parts_.step.Forget();
  parts_.optimizer->ClearGradients();
  return parts_.optimizer->LoadState(OptimizerStateOf(state));
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<BlockList> model,
                                                 const config::DsConfig& config,
                                                 EngineOptions options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<EngineParts> parts,
                      BuildEngine(std::move(model), config, std::move(options)));
  return std::unique_ptr<Engine>(new Engine(std::move(parts)));
}

Engine::Engine(std::unique_ptr<EngineParts> parts)
    : parts_(std::move(parts)), state_(std::make_unique<EngineState>(*parts_)) {}
Engine::~Engine() = default;

void EngineParts::CheckIsWhole(const char* what) const {
  TORCH_CHECK(!channels, what, " of one of ", mesh.degrees().pipeline,
              " stages: TrainStep runs a whole step of them");
}

at::Tensor Engine::forward(Bundle batch) {
  parts_->CheckIsWhole("forward");
  return Executor(*parts_).Forward(std::move(batch));
}

void Engine::backward(const at::Tensor& loss, bool scale_wrt_gas) {
  parts_->CheckIsWhole("backward");
  Executor(*parts_).Backward(loss, scale_wrt_gas);
}

StatusOr<StepResult> Engine::step() {
  parts_->CheckIsWhole("step");
  Executor executor(*parts_);
  DS_RETURN_IF_ERROR(executor.Reduce());
  return executor.Step();
}

namespace {

// Calls take(name, tensor) on the first rank of a stage for the corresponding parameters of ranks
// with other experts. Collective of the stage.
template <typename Take>
void TakeOfOtherExperts(EngineParts& parts, const zero::NamedParameter& parameter,
                        const at::Tensor& whole, const Take& take) {
  constexpr const char* kTag = "experts on their way out";
  if (!parameter.placement.expert) return;
  comm::Communicator& ranks = FindExpertCommunicator(parts.mesh, parts.world());
  if (!IsFirstWith(parameter.placement, parts.mesh, parts.world().rank())) return;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const std::string name = comm::BroadcastText(parameter.name, rank, ranks);
    if (ranks.rank() == rank) ranks.Send(whole.contiguous(), /*peer=*/0, kTag);
    if (ranks.rank() != 0) continue;
    const at::Tensor other = at::empty_like(whole);
    ranks.Recv(other, rank, kTag);
    take(name, other);
  }
}

// Calls take(name, tensor) for all tensors of this stage that no earlier stage has. They are
// unsharded if this rank is its stage's first. Collective of the stage.
template <typename Take>
void ForEachWhole(EngineParts& parts, const Take& take) {
  zero::ShardedModel& sharded = *parts.sharded;
  sharded.BeginReading();
  for (int i = 0; i < static_cast<int>(sharded.units().size()); ++i) {
    sharded.Enter(i);
    for (const auto& bucket : sharded.units()[static_cast<std::size_t>(i)]->buckets()) {
      for (int p = 0; p < bucket->parameters().layout().size(); ++p) {
        const zero::NamedParameter& parameter = bucket->parameters().parameter(p);
        if (!sharded.context().IsOfThisStage(parameter.placement)) continue;
        const at::Tensor whole = PutTogether(parameter, parts.mesh, parts.world());
        take(parameter.name, whole);
        TakeOfOtherExperts(parts, parameter, whole, take);
      }
    }
  }
  sharded.EndReading();
  for (const auto& [name, tensor] : parts.buffers.all()) take(name, tensor.detach());
}

// Takes the tensors that the first ranks of later stages send to rank 0: messages with one tensor
// each, and an empty one at the end.
template <typename Take>
void ForEachOfLaterStages(EngineParts& parts, const Take& take) {
  for (int stage = 1; stage < parts.mesh.degrees().pipeline; ++stage) {
    for (NamedTensors one; !(one = parts.channels->ReceiveWhole(stage)).empty();) {
      take(one.begin()->first, one.begin()->second);
    }
  }
}

}  // namespace

Status Engine::ExportParameters(const ParameterSink& sink) {
  DS_RETURN_IF_ERROR(parts_->ReloadStates());
  parts_->optimizer->Settle();
  Status status;
  const auto give_to_sink = [&](const std::string& name, const at::Tensor& whole) {
    if (status.ok()) status = sink(name, whole.cpu());
  };
  const auto hand_on = [&](const std::string& name, const at::Tensor& whole) {
    parts_->channels->SendWhole(0, {{name, whole}});
    parts_->channels->AwaitSends();
  };
  const bool is_first_of_stage = parts_->mesh.MemberOf(world().rank(), kStageAxes).index == 0;
  ForEachWhole(*parts_, [&](const std::string& name, const at::Tensor& whole) {
    if (world().rank() == 0) return give_to_sink(name, whole);
    if (is_first_of_stage && parts_->channels) hand_on(name, whole);
  });
  if (world().rank() == 0) {
    ForEachOfLaterStages(*parts_, give_to_sink);
  } else if (is_first_of_stage && parts_->channels) {
    parts_->channels->SendWhole(0, {});
    parts_->channels->AwaitSends();
  }
  return comm::AgreeOnStatus(status, world());
}

checkpoint::Stateful& Engine::state() { return *state_; }

std::int64_t Engine::finished_steps() const { return parts_->step.counts.finished; }

std::int64_t Engine::gradient_accumulation_steps() const {
  return parts_->config.batch.gradient_accumulation_steps;
}

std::int64_t Engine::parameter_count() const { return parts_->parameter_count; }

comm::Communicator& Engine::world() const { return parts_->world(); }

const nlohmann::ordered_json& Engine::memory_breakdown() const {
  return parts_->memory.breakdown();
}
const device::MemoryLedger& Engine::ledger() const { return *parts_->sharded->context().ledger; }

}  // namespace ds::engine
