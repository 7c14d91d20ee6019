#include "runtime/engine/engine.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/comm/mesh_groups.h"
#include "runtime/engine/build_engine.h"
#include "runtime/engine/engine_components.h"
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
  const at::Tensor full = at::zeros(placement.global_shape, local.options());
  const at::Tensor flat = full.view({-1}), own = local.reshape({-1});
  for (const checkpoint::Stretch& stretch :
       checkpoint::FindStretches(placement.global_shape, {placement.boxes, 0, local.numel()})) {
    flat.narrow(0, stretch.global, stretch.count)
        .copy_(own.narrow(0, stretch.local, stretch.count));
  }
  // Each rank has zeros outside its part.
  comm::GroupOver(axes, "tensor parallelism", mesh, world)
      .Reduce(full, /*root=*/0, comm::ReduceOp::kSum, parameter.name);
  return full;
}

// Returns the optimizer's part of an engine's state; null if there is none.
nlohmann::json OptimizerStateOf(const nlohmann::json& state) {
  const auto of_optimizer = state.find("optimizer_state");
  return of_optimizer == state.end() ? nlohmann::json() : *of_optimizer;
}

// EngineState is the engine's part of checkpoints (contents: Engine::state).
class EngineState : public checkpoint::Stateful {
 public:
  // The arguments must outlive this object.
  EngineState(TrainedModel& model, StepContext& step) : model_(model), step_(step) {}

  std::string_view state_name() const override { return "engine"; }
  Status CheckSavable() const override;
  void AddShards(std::vector<checkpoint::TensorShard>* shards) override;
  nlohmann::json State() const override;
  Status CheckState(const nlohmann::json& state) const override;
  void ExpectState(const nlohmann::json& state) override;
  Status LoadState(const nlohmann::json& state) override;

 private:
  TrainedModel& model_;
  StepContext& step_;
};

Status EngineState::CheckSavable() const {
  DS_RETURN_IF_ERROR(model_.CheckNotGathered());
  return step_.state.CheckBetweenSteps("a checkpoint is saved");
}

void EngineState::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  model_.optimizer->Settle();
  model_.optimizer->AddShards(shards);
  const zero::Context& context = model_.sharded->context();
  model_.buffers.MakeEqual(*context.groups.gradients);
  const topology::AxisSet holders =
      zero::Context::FullCopyAxes({}).With(topology::Axis::kTensor);  // any rank with the module
  model_.buffers.AddShards(context.ReplicaAlong(holders), shards);
}

nlohmann::json EngineState::State() const {
  nlohmann::json state = step_.state.counts.State();
  state["loss_scaler"] = step_.loss_scaler.State();
  state["optimizer"] = model_.optimizer->optimizer_name();
  state["optimizer_state"] = model_.optimizer->State();
  step_.rates.AddTo(&state);
  return state;
}

Status EngineState::CheckState(const nlohmann::json& state) const {
  const auto theirs = state.find("optimizer");
  if (theirs == state.end() || !theirs->is_string()) {
    return DataLossError("the engine's state names no \"optimizer\"");
  }
  const std::string_view ours = model_.optimizer->optimizer_name();
  if (*theirs == ours) return model_.optimizer->CheckState(OptimizerStateOf(state));
  return InvalidArgumentError(
      "the checkpoint holds the state of optimizer " + theirs->get<std::string>() + ", which " +
      std::string(ours) +
      " cannot resume from: set optimizer.type and zero_optimization.zenflow as they were, or "
      "start from the saved model's weights");
}

void EngineState::ExpectState(const nlohmann::json& state) {
  model_.optimizer->ExpectState(OptimizerStateOf(state));
}

Status EngineState::LoadState(const nlohmann::json& state) {
  DS_RETURN_IF_ERROR(model_.ReloadStates());
  DS_RETURN_IF_ERROR(step_.LoadProgress(state));
  step_.state.Forget();
  model_.optimizer->ClearGradients();
  return model_.optimizer->LoadState(OptimizerStateOf(state));
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<BlockList> model,
                                                 const config::DsConfig& config,
                                                 EngineOptions options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<EngineComponents> components,
                      BuildEngine(std::move(model), config, std::move(options)));
  return std::unique_ptr<Engine>(new Engine(std::move(components)));
}

StatusOr<std::unique_ptr<Engine>> Engine::create(const UnitList& model,
                                                 const config::DsConfig& config,
                                                 EngineOptions options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<EngineComponents> components,
                      BuildEngine(model, config, std::move(options)));
  return std::unique_ptr<Engine>(new Engine(std::move(components)));
}

Engine::Engine(std::unique_ptr<EngineComponents> components)
    : components_(std::move(components)),
      state_(std::make_unique<EngineState>(components_->model, components_->step)) {}
Engine::~Engine() = default;

at::Tensor Engine::forward(Bundle batch) {
  components_->topology.CheckSingleStage("forward");
  return Executor(*components_).Forward(std::move(batch));
}

void Engine::backward(const at::Tensor& loss, bool scale_wrt_gas, bool retain_graph) {
  components_->topology.CheckSingleStage("backward");
  Executor(*components_).Backward(loss, scale_wrt_gas, retain_graph);
}

StatusOr<StepResult> Engine::step() {
  components_->topology.CheckSingleStage("step");
  Executor executor(*components_);
  DS_RETURN_IF_ERROR(executor.Reduce());
  return executor.Step();
}

namespace {

// Calls take(name, tensor) on the first rank of a stage for the corresponding parameters of ranks
// with other experts. Collective of the stage.
template <typename Take>
void TakeOfOtherExperts(const RankTopology& topology, const zero::NamedParameter& parameter,
                        const at::Tensor& full, const Take& take) {
  constexpr const char* kTag = "export of experts";
  if (!parameter.placement.expert) return;
  comm::Communicator& ranks = FindExpertCommunicator(topology.mesh, *topology.world);
  if (!IsFirstWith(parameter.placement, topology.mesh, topology.world->rank())) return;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const std::string name = comm::BroadcastText(parameter.name, rank, ranks);
    if (ranks.rank() == rank) ranks.Send(full.contiguous(), /*peer=*/0, kTag);
    if (ranks.rank() != 0) continue;
    const at::Tensor other = at::empty_like(full);
    ranks.Recv(other, rank, kTag);
    take(name, other);
  }
}

// Calls take(name, tensor) for all tensors of this stage that no earlier stage has. They are
// unsharded if this rank is its stage's first. Collective of the stage.
template <typename Take>
void ForEachFull(TrainedModel& model, const RankTopology& topology, const Take& take) {
  zero::ShardedModel& sharded = *model.sharded;
  sharded.BeginReading();
  for (int i = 0; i < static_cast<int>(sharded.units().size()); ++i) {
    sharded.Enter(i);
    for (const auto& bucket : sharded.units()[static_cast<std::size_t>(i)]->buckets()) {
      for (int p = 0; p < bucket->parameters().layout().size(); ++p) {
        const zero::NamedParameter& parameter = bucket->parameters().parameter(p);
        if (!sharded.context().IsOfThisStage(parameter.placement)) continue;
        const at::Tensor full = PutTogether(parameter, topology.mesh, *topology.world);
        take(parameter.name, full);
        TakeOfOtherExperts(topology, parameter, full, take);
      }
    }
  }
  sharded.EndReading();
  for (const auto& [name, tensor] : model.buffers.all()) take(name, tensor.detach());
}

// Takes the tensors that the first ranks of later stages send to rank 0: messages with one tensor
// each, and an empty one at the end.
template <typename Take>
void ForEachOfLaterStages(RankTopology& topology, const Take& take) {
  for (int stage = 1; stage < topology.mesh.degrees().pipeline; ++stage) {
    for (NamedTensors one; !(one = topology.channels->ReceiveFull(stage)).empty();) {
      take(one.begin()->first, one.begin()->second);
    }
  }
}

}  // namespace

Status Engine::ExportParameters(const ParameterSink& sink) {
  TrainedModel& model = components_->model;
  RankTopology& topology = components_->topology;
  DS_RETURN_IF_ERROR(model.ReloadStates());
  model.optimizer->Settle();
  Status status;
  const auto give_to_sink = [&](const std::string& name, const at::Tensor& full) {
    if (status.ok()) status = sink(name, full.cpu());
  };
  const auto hand_on = [&](const std::string& name, const at::Tensor& full) {
    topology.channels->SendFull(0, {{name, full}});
    topology.channels->AwaitSends();
  };
  const bool is_first_of_stage = topology.mesh.MemberOf(world().rank(), kStageAxes).index == 0;
  ForEachFull(model, topology, [&](const std::string& name, const at::Tensor& full) {
    if (world().rank() == 0) return give_to_sink(name, full);
    if (is_first_of_stage && topology.channels) hand_on(name, full);
  });
  if (world().rank() == 0) {
    ForEachOfLaterStages(topology, give_to_sink);
  } else if (is_first_of_stage && topology.channels) {
    topology.channels->SendFull(0, {});
    topology.channels->AwaitSends();
  }
  return comm::AgreeOnStatus(status, world());
}

checkpoint::Stateful& Engine::state() { return *state_; }

std::int64_t Engine::finished_steps() const { return components_->step.state.counts.finished; }

std::int64_t Engine::gradient_accumulation_steps() const {
  return components_->step.batch.gradient_accumulation_steps;
}

std::int64_t Engine::parameter_count() const { return components_->model.parameter_count; }

comm::Communicator& Engine::world() const { return *components_->topology.world; }

const nlohmann::ordered_json& Engine::memory_breakdown() const {
  return components_->reporter.memory.breakdown();
}
const device::MemoryLedger& Engine::ledger() const {
  return *components_->model.sharded->context().ledger;
}

}  // namespace ds::engine
