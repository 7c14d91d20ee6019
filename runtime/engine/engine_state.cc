#include "runtime/engine/build_engine.h"

#include <string>

namespace ds::engine {
namespace {

// Returns the optimizer's part of an engine's state; null if there is none.
nlohmann::json OptimizerStateOf(const nlohmann::json& state) {
  const auto of_optimizer = state.find("optimizer_state");
  return of_optimizer == state.end() ? nlohmann::json() : *of_optimizer;
}

}  // namespace

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

}  // namespace ds::engine
