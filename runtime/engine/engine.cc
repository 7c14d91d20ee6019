#include "runtime/engine/engine.h"

#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "runtime/comm/agreement.h"
#include "runtime/engine/build_engine.h"
#include "runtime/engine/engine_parts.h"

namespace ds::engine {
namespace {

// Without a schedule that cycles it.
double ConfiguredMomentum(const config::OptimizerConfig& optimizer) {
  return std::visit(
      [](const auto& each) {
        if constexpr (requires { each.beta1; }) return each.beta1;
        if constexpr (requires { each.momentum; }) return each.momentum;
        return 0.0;
      },
      optimizer.algorithm);
}

}  // namespace

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

std::int64_t Engine::finished_steps() const { return parts_->finished_steps; }
std::int64_t Engine::skipped_steps() const {
  return parts_->finished_steps - parts_->applied_steps;
}
std::int64_t Engine::micro_steps() const {
  return parts_->micro_steps + parts_->step.micro_batches;
}
std::int64_t Engine::global_samples() const { return parts_->global_samples; }
bool Engine::was_step_applied() const { return parts_->latest_was_applied; }
std::optional<double> Engine::global_grad_norm() const { return parts_->latest_norm; }
double Engine::loss_scale() const { return parts_->loss_scaler.scale(); }
double Engine::lr() const { return parts_->scheduled()[0].lr; }
double Engine::momentum() const {
  return parts_->scheduled()[0].momentum.value_or(ConfiguredMomentum(parts_->config.optimizer));
}
Status Engine::set_lr(double lr) {
  if (!(lr >= 0.0 && std::isfinite(lr))) {
    return InvalidArgumentError("a learning rate is a number of at least 0");
  }
  parts_->set_lr = lr;
  return OkStatus();
}
TensorAccess& Engine::tensors() { return *parts_->tensors; }

std::int64_t Engine::gradient_accumulation_steps() const {
  return parts_->config.batch.gradient_accumulation_steps;
}

std::int64_t Engine::parameter_count() const {
  return parts_->sharded->trainable_numel() + parts_->sharded->frozen_numel();
}

comm::Communicator& Engine::world() const { return *parts_->sharded->context().world; }

const device::MemoryLedger& Engine::ledger() const { return *parts_->sharded->context().ledger; }

std::string_view Engine::state_name() const { return "engine"; }

Status Engine::CheckSavable() const { return parts_->CheckBetweenSteps("a checkpoint is saved"); }

void Engine::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  parts_->ReloadStates();
  parts_->optimizer->AddShards(shards);
  parts_->buffers.MakeAlike(world());
  parts_->buffers.AddShards({.index = world().rank(), .count = world().size()}, shards);
}

nlohmann::json Engine::State() const {
  nlohmann::json state = {{"finished_steps", parts_->finished_steps},
                          {"applied_steps", parts_->applied_steps},
                          {"micro_steps", parts_->micro_steps},
                          {"global_samples", parts_->global_samples},
                          {"loss_scaler", parts_->loss_scaler.State()},
                          {"optimizer", parts_->optimizer->optimizer_name()},
                          {"optimizer_state", parts_->optimizer->State()}};
  if (parts_->set_lr) state["set_lr"] = *parts_->set_lr;
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
  for (const auto& [key, target] : {std::pair{"finished_steps", &parts_->finished_steps},
                                    std::pair{"applied_steps", &parts_->applied_steps},
                                    std::pair{"micro_steps", &parts_->micro_steps},
                                    std::pair{"global_samples", &parts_->global_samples}}) {
    const auto found = state.find(key);
    if (found == state.end() || !found->is_number_unsigned()) {
      return DataLossError("the engine's state has no count \"" + std::string(key) + "\"");
    }
    *target = found->get<std::int64_t>();
  }
  if (const auto scaler = state.find("loss_scaler");
      parts_->loss_scaler.dynamic() && scaler != state.end()) {
    DS_RETURN_IF_ERROR(parts_->loss_scaler.LoadState(*scaler));
  }
  parts_->set_lr.reset();
  if (const auto lr = state.find("set_lr"); lr != state.end()) {
    if (!lr->is_number()) return DataLossError("the engine's \"set_lr\" is no number");
    DS_RETURN_IF_ERROR(set_lr(lr->get<double>()));
  }
  parts_->step = {};
  parts_->latest_was_applied = false;
  parts_->latest_norm.reset();
  parts_->optimizer->ClearGradients();
  const auto optimizer = state.find("optimizer_state");
  return parts_->optimizer->LoadState(optimizer == state.end() ? nlohmann::json() : *optimizer);
}

}  // namespace ds::engine
