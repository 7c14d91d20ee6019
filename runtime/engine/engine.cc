#include "runtime/engine/engine.h"
#include <variant>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/comm/connect_world.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/engine/build_units.h"
#include "runtime/engine/engine_parts.h"
#include "runtime/engine/group_schedules.h"
#include "runtime/optim/groups/base_shapes.h"
#include "runtime/optim/muon.h"
#include "runtime/precision/dtype_policy.h"
#include "runtime/precision/gradient_reduction.h"
#include "runtime/precision/loss_scaler.h"

namespace ds::engine {
namespace {

StatusOr<std::unique_ptr<comm::Communicator>> ConnectFromEnvironment(c10::Device device) {
  DS_ASSIGN_OR_RETURN(const comm::RankIdentity identity, comm::RankIdentityFromEnvironment());
  device::RankDevice rank_device{.device = device};
  if (!device.is_cpu()) {
    DS_ASSIGN_OR_RETURN(rank_device,
                        device::OpenRankDevice(device::DeviceChoice::kCuda, identity.local_rank));
  }
  return comm::ConnectWorld(identity, rank_device);
}

// The device of the group's tensors, if it is what is wanted.
StatusOr<c10::Device> ChooseDevice(c10::Device wanted, c10::Device of_group) {
  const bool any_index = wanted.is_cpu() || !wanted.has_index();
  if (wanted.type() == of_group.type() && (any_index || wanted == of_group)) return of_group;
  return InvalidArgumentError("the engine is to be on " + wanted.str() +
                              ", and its ranks talk through " + of_group.str() +
                              ": name that in EngineOptions::device, or its type alone");
}

// How many of the unit's parameters have values: the user's own modules have, ours do not.
std::int64_t CountWithValues(const zero::ParameterUnit& unit) {
  return std::count_if(unit.parameters.begin(), unit.parameters.end(), [](const auto& parameter) {
    return parameter.tensor.numel() == 0 || parameter.tensor.storage().nbytes() > 0;
  });
}

// How each unit gets its first values. Asks before ZeRO moves the parameters, when it can be seen
// which of them have values.
StatusOr<zero::FillUnit> MakeFillUnit(BlockList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options) {
  using zero::FirstValues;
  if (options.load_block) {
    return zero::FillUnit([&](int index) -> StatusOr<FirstValues> {
      DS_RETURN_IF_ERROR(options.load_block(index, model.block(index)));
      return FirstValues::kSameEverywhere;
    });
  }
  std::vector<bool> has_values;
  for (const zero::ParameterUnit& unit : units) {
    const std::int64_t count = CountWithValues(unit);
    const auto all = static_cast<std::int64_t>(unit.parameters.size());
    if (count != 0 && count != all) {
      return InvalidArgumentError(unit.name + ": " + std::to_string(count) + " of " +
                                  std::to_string(all) +
                                  " parameters have values; give values to all of them or to none");
    }
    has_values.push_back(count != 0);
  }
  return zero::FillUnit([&model, has_values, seed = options.seed](int index) {
    if (has_values[static_cast<std::size_t>(index)]) {
      return StatusOr<FirstValues>(FirstValues::kRankZeros);
    }
    model.block(index).Initialize(seed);
    return StatusOr<FirstValues>(FirstValues::kSameEverywhere);
  });
}

StatusOr<optim::ParameterGrouper> MakeGrouper(const BlockList& model,
                                              const config::DsConfig& config,
                                              const EngineOptions& options) {
  const config::OptimizerConfig& optimizer = config.optimizer;
  if (const auto* muon = std::get_if<config::MuonConfig>(&optimizer.algorithm)) {
    return optim::WithMuonMatrices(muon->adam_lr / optimizer.lr, options.parameter_group);
  }
  if (optimizer.base_shapes.empty()) return options.parameter_group;
  DS_ASSIGN_OR_RETURN(optim::BaseShapes base, optim::ReadBaseShapes(optimizer.base_shapes));
  optim::Shapes shapes;
  for (const zero::ParameterUnit& unit : BuildUnits(model, optim::OneGroup)) {
    for (const auto& parameter : unit.parameters) {
      shapes[parameter.name] = parameter.tensor.sizes().vec();
    }
  }
  if (const Status fits = optim::CheckBaseShapes(base, shapes); !fits.ok()) {
    return InvalidArgumentError(optimizer.base_shapes + ": " + fits.message());
  }
  const bool like_sgd = std::holds_alternative<config::SgdConfig>(optimizer.algorithm);
  return optim::WithMuRates(std::move(base), like_sgd, options.parameter_group);
}

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
  auto parts = std::make_unique<Parts>();
  if (options.world == nullptr) {
    DS_ASSIGN_OR_RETURN(parts->own_world, ConnectFromEnvironment(options.device));
    options.world = parts->own_world.get();
  }
  DS_ASSIGN_OR_RETURN(options.device, ChooseDevice(options.device, options.world->device()));
  if (options.ledger == nullptr) {
    parts->own_ledger = std::make_unique<device::MemoryLedger>();
    options.ledger = parts->own_ledger.get();
  }
  const zero::Context context{
      .world = options.world,
      .ledger = options.ledger,
      .device = options.device,
      .sharding = config::ShardingOfStage(config.zero_optimization.stage, options.world->size()),
      .dtypes = precision::MakeDtypePolicy(config),
      .reduction = precision::MakeGradientReduction(config, options.world->size())};
  DS_ASSIGN_OR_RETURN(const optim::ParameterGrouper grouper, MakeGrouper(*model, config, options));
  std::vector<zero::ParameterUnit> units = BuildUnits(*model, grouper);
  // From stage 1, as in DeepSpeed.
  if (context.dtypes.autocast && config.zero_optimization.stage > 0) {
    ReduceModulesIn(*context.dtypes.autocast, config.torch_autocast.lower_precision_safe_modules,
                    *model, &units);
  }
  DS_ASSIGN_OR_RETURN(parts->group_rates, FollowGroupSchedules(config, &units));
  if (config.sparse_gradients) ReduceEmbeddingsByRows(*model, &units);
  DS_ASSIGN_OR_RETURN(parts->buffers, ModuleBuffers::Find(*model, options.device));
  if (config.buffer_dtype) parts->buffers.Cast(precision::ToScalarType(*config.buffer_dtype));
  DS_ASSIGN_OR_RETURN(const zero::FillUnit fill, MakeFillUnit(*model, units, options));
  DS_ASSIGN_OR_RETURN(parts->sharded, zero::ShardedModel::Create(context, units, fill));
  parts->buffers.MakeAlike(*options.world);
  parts->optimizer = std::make_unique<zero::ShardedOptimizer>(*parts->sharded, config.optimizer);
  parts->model = std::move(model);
  parts->config = config;
  parts->loss_scaler = precision::MakeLossScaler(config);
  parts->non_finite = options.non_finite;
  std::unique_ptr<Engine> engine(new Engine(std::move(parts)));
  engine->parts_->tensors = std::make_unique<TensorAccess>(*engine);
  return engine;
}

Engine::Engine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
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
