#include "runtime/engine/engine.h"

#include <string>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/engine/build_engine.h"
#include "runtime/engine/engine_parts.h"

namespace ds::engine {
StatusOr<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<BlockList> model,
                                                 const config::DsConfig& config,
                                                 EngineOptions options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<EngineParts> parts,
                      BuildEngine(std::move(model), config, std::move(options)));
  std::unique_ptr<Engine> engine(new Engine(std::move(parts)));
  engine->parts_->tensors = std::make_unique<TensorAccess>(*engine);
  return engine;
}

Engine::Engine(std::unique_ptr<EngineParts> parts) : parts_(std::move(parts)) {}
Engine::~Engine() = default;

Status Engine::ExportParameters(const ParameterSink& sink) {
  parts_->ReloadStates();
  zero::ShardedModel& sharded = *parts_->sharded;
  Status status;
  for (int i = 0; i < static_cast<int>(sharded.units().size()); ++i) {
    sharded.Enter(i);
    for (const auto& group : sharded.units()[static_cast<std::size_t>(i)]->groups()) {
      for (int p = 0; p < group->parameters.layout().size(); ++p) {
        if (world().rank() != 0 || !status.ok()) continue;
        const zero::NamedParameter& parameter = group->parameters.parameter(p);
        status = sink(parameter.name, parameter.tensor.detach().cpu());
      }
    }
  }
  sharded.ReleaseAll();
  for (const auto& [name, tensor] : parts_->buffers.all()) {
    if (world().rank() == 0 && status.ok()) status = sink(name, tensor.detach().cpu());
  }
  return comm::AgreeOnStatus(status, world());
}

std::int64_t Engine::finished_steps() const { return parts_->step.counts.finished; }
std::int64_t Engine::skipped_steps() const {
  return parts_->step.counts.finished - parts_->step.counts.applied;
}
std::int64_t Engine::micro_steps() const {
  return parts_->step.counts.micro_batches + parts_->step.current.micro_batches;
}
std::int64_t Engine::global_samples() const { return parts_->step.counts.samples; }
bool Engine::was_step_applied() const { return parts_->step.latest_was_applied; }
std::optional<double> Engine::global_grad_norm() const { return parts_->step.latest_norm; }
double Engine::loss_scale() const { return parts_->loss_scaler.scale(); }
double Engine::lr() const { return parts_->rates.FindNext(parts_->step.counts.applied)[0].lr; }
double Engine::momentum() const { return parts_->rates.FindMomentum(parts_->step.counts.applied); }
Status Engine::set_lr(double lr) { return parts_->rates.Set(lr); }
TensorAccess& Engine::tensors() { return *parts_->tensors; }

std::int64_t Engine::gradient_accumulation_steps() const {
  return parts_->config.batch.gradient_accumulation_steps;
}

std::int64_t Engine::parameter_count() const {
  return parts_->sharded->trainable_numel() + parts_->sharded->frozen_numel();
}

comm::Communicator& Engine::world() const { return *parts_->sharded->context().groups.all; }

const device::MemoryLedger& Engine::ledger() const { return *parts_->sharded->context().ledger; }

std::string_view Engine::state_name() const { return "engine"; }

Status Engine::CheckSavable() const {
  return parts_->step.CheckBetweenSteps("a checkpoint is saved");
}

void Engine::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  parts_->ReloadStates();
  parts_->optimizer->AddShards(shards);
  const zero::Context& context = parts_->sharded->context();
  parts_->buffers.MakeAlike(*context.groups.gradients);
  parts_->buffers.AddShards(context.WholeReplica(), shards);
}

nlohmann::json Engine::State() const {
  nlohmann::json state = parts_->step.counts.State();
  state["loss_scaler"] = parts_->loss_scaler.State();
  state["optimizer"] = parts_->optimizer->optimizer_name();
  state["optimizer_state"] = parts_->optimizer->State();
  parts_->rates.AddTo(&state);
  return state;
}

Status Engine::CheckState(const nlohmann::json& state) const {
  const auto theirs = state.find("optimizer");
  if (theirs == state.end() || !theirs->is_string()) {
    return DataLossError("the engine's state names no \"optimizer\"");
  }
  const std::string_view ours = parts_->optimizer->optimizer_name();
  if (*theirs == ours) return OkStatus();
  return InvalidArgumentError("the checkpoint holds the state of optimizer " +
                              theirs->get<std::string>() + ", which " + std::string(ours) +
                              " cannot go on from: set optimizer.type as it was, or start from the "
                              "saved model's weights");
}

Status Engine::LoadState(const nlohmann::json& state) {
  DS_RETURN_IF_ERROR(parts_->step.counts.LoadState(state));
  if (const auto scaler = state.find("loss_scaler");
      parts_->loss_scaler.dynamic() && scaler != state.end()) {
    DS_RETURN_IF_ERROR(parts_->loss_scaler.LoadState(*scaler));
  }
  DS_RETURN_IF_ERROR(parts_->rates.LoadState(state));
  parts_->step.Forget();
  parts_->optimizer->ClearGradients();
  const auto optimizer = state.find("optimizer_state");
  return parts_->optimizer->LoadState(optimizer == state.end() ? nlohmann::json() : *optimizer);
}

}  // namespace ds::engine
