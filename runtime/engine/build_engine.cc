#include "runtime/engine/build_engine.h"

#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <variant>

#include "runtime/base/check.h"
#include "runtime/base/rank_link.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/join_job.h"
#include "runtime/comm/mesh_groups.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/device/copy_streams.h"
#include "runtime/device/dtype_policy.h"
#include "runtime/device/gradient_reduction.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/engine/offload_tiers.h"
#include "runtime/engine/parameter_units.h"
#include "runtime/optim/groups/base_shapes.h"
#include "runtime/optim/muon.h"
#include "runtime/plan/memory/engine_rules.h"
#include "runtime/plan/zero/describe_step.h"
#include "runtime/plan/zero/residency_budgets.h"

namespace ds::engine {
namespace {

StatusOr<std::unique_ptr<comm::Communicator>> ConnectFromEnvironment(const EngineOptions& options) {
  DS_ASSIGN_OR_RETURN(const comm::RankIdentity identity, comm::RankIdentityFromEnvironment());
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RankLink> link, RankLink::FromEnvironment());
  device::RankDevice rank_device{.device = options.device};
  if (!options.device.is_cpu()) {
    DS_ASSIGN_OR_RETURN(rank_device,
                        device::OpenRankDevice(device::DeviceChoice::kCuda, identity.local_rank));
  }
  return comm::JoinJob(identity, rank_device, link.get(), options.encrypt);
}

// Returns the device of the group's tensors, if it matches the wanted one.
StatusOr<c10::Device> ChooseDevice(c10::Device wanted, c10::Device of_group) {
  const bool any_index = wanted.is_cpu() || !wanted.has_index();
  if (wanted.type() == of_group.type() && (any_index || wanted == of_group)) return of_group;
  return InvalidArgumentError("the engine is to be on " + wanted.str() +
                              ", and its ranks talk through " + of_group.str() +
                              ": name that in EngineOptions::device, or its type alone");
}

// `Model` is BlockList or UnitList.
template <typename Model>
StatusOr<optim::ParameterGrouper> MakeGrouper(const Model& model, const config::DsConfig& config,
                                              const EngineOptions& options) {
  const config::OptimizerConfig& optimizer = config.optimizer;
  if (std::holds_alternative<config::MuonConfig>(optimizer.algorithm)) {
    return optim::WithMuonMatrices(options.parameter_group);
  }
  if (optimizer.base_shapes.empty()) return options.parameter_group;
  DS_ASSIGN_OR_RETURN(optim::BaseShapes base, optim::ReadBaseShapes(optimizer.base_shapes));
  optim::Shapes shapes;
  for (const zero::ParameterUnit& unit : BuildUnits(model, optim::OneGroup)) {
    for (const auto& parameter : unit.parameters) {
      shapes[parameter.name] = parameter.placement.global_shape;
    }
  }
  if (const Status fits = optim::CheckBaseShapes(base, shapes); !fits.ok()) {
    return InvalidArgumentError(optimizer.base_shapes + ": " + fits.message());
  }
  const bool like_sgd = std::holds_alternative<config::SgdConfig>(optimizer.algorithm);
  return optim::WithMuRates(std::move(base), std::move(shapes), like_sgd, options.parameter_group);
}

// Sets the options' world, ledger and device. Creates a world or ledger that the caller did not
// provide.
Status TakeWorldAndLedger(EngineOptions* options, EngineResources* resources) {
  if (options->world == nullptr) {
    DS_ASSIGN_OR_RETURN(resources->world, ConnectFromEnvironment(*options));
    options->world = resources->world.get();
  }
  if (options->ledger == nullptr) {
    resources->ledger = std::make_unique<device::MemoryLedger>();
    options->ledger = resources->ledger.get();
  }
  DS_ASSIGN_OR_RETURN(options->device, ChooseDevice(options->device, options->world->device()));
  return OkStatus();
}

Status CheckSecondaryShards(const topology::Mesh& mesh, const config::ZeroConfig& zero) {
  const int shards = mesh.CountOver(topology::kShardAxes);
  if (!zero::HasSecondaryShards(zero, shards) || shards % zero.hpz_partition_size == 0)
    return OkStatus();
  return InvalidArgumentError("zero_optimization.zero_hpz_partition_size " +
                              std::to_string(zero.hpz_partition_size) + " does not divide the " +
                              std::to_string(shards) + " ranks that share the state");
}

zero::SecondaryGroups MakeSecondaryGroups(const config::ZeroConfig& zero,
                                          comm::Communicator& shards) {
  if (!zero::HasSecondaryShards(zero, shards.size())) return {};
  const int size = zero.hpz_partition_size;
  std::vector<int> within, across;
  for (int rank = 0; rank < shards.size(); ++rank) {
    if (rank / size == shards.rank() / size) within.push_back(rank);
    if (rank % size == shards.rank() % size) across.push_back(rank);
  }
  return {.within = &shards.Group("secondary shards of " + std::to_string(size), within),
          .across = &shards.Group("places of secondary shards of " + std::to_string(size), across)};
}

comm::RankGroups MakeGroups(topology::AxisSet shard_axes, const topology::Mesh& mesh,
                            comm::Communicator& world) {
  const topology::AxisSet copies = topology::kGradientAxes.Without(shard_axes);
  const auto over = [&](topology::AxisSet axes) {
    return &comm::GroupOver(axes, "model state", mesh, world);
  };
  const topology::AxisSet stage = topology::kGradientAxes.With(topology::Axis::kTensor);
  return {.all = &world,
          .gradients = over(topology::kGradientAxes),
          .shards = over(shard_axes),
          .replicas = mesh.CountOver(copies) > 1 ? over(copies) : nullptr,
          .stage = mesh.degrees().pipeline > 1 ? over(stage) : nullptr};
}

// Returns the context of expert parameters: ranks with the same experts take the role that all
// ranks have for dense parameters.
zero::Context OfExperts(zero::Context dense, const config::ZeroConfig& zero) {
  const topology::Mesh& mesh = dense.mesh;
  comm::Communicator& world = *dense.groups.all;
  const std::vector<int> adding = mesh.SameExpertsOf(world.rank(), topology::kGradientAxes);
  const std::vector<int> cutting = mesh.SameExpertsOf(world.rank(), dense.shard_axes);
  const auto group = [&](const char* purpose, const std::vector<int>& ranks) {
    return &world.Group(NameExpertGroup(purpose, mesh), ranks);
  };
  dense.groups.gradients = group("gradients of the same experts", adding);
  dense.groups.shards =
      cutting == adding ? dense.groups.gradients : group("shards of the same experts", cutting);
  dense.sharding = config::ShardingOf(zero, dense.groups.shards->size());
  dense.reduction = precision::ForExperts(dense.reduction, mesh.degrees().expert);
  dense.is_of_experts = true;
  return dense;
}

zero::ResidencyBudgets MakeBudgets(const config::ZeroConfig& zero,
                                   const precision::DtypePolicy& dtypes, bool overlap) {
  const auto size_of = [](c10::ScalarType type) {
    return static_cast<std::int64_t>(c10::elementSize(type));
  };
  zero::ResidencyBudgets budgets = zero::MakeResidencyBudgets(
      zero, {.parameter = size_of(dtypes.parameter), .gradient = size_of(dtypes.reduction)},
      overlap);
  budgets.fetch_bytes = zero::ChooseFetchBytes(zero, size_of(dtypes.parameter));
  return budgets;
}

zero::Context MakeContext(const config::DsConfig& config, const EngineOptions& options,
                          const topology::Mesh& mesh, const zero::Tiers& tiers,
                          const std::vector<zero::ParameterUnit>& units) {
  const config::ZeroConfig& zero = config.zero_optimization;
  const int stage = zero.stage;
  const precision::DtypePolicy dtypes = precision::MakeDtypePolicy(config);
  const topology::AxisSet shard_axes = stage == 0 ? topology::kGradientAxes : topology::kShardAxes;
  const comm::RankGroups groups = MakeGroups(shard_axes, mesh, *options.world);
  const bool overlap = zero::ChooseOverlap(
      zero, {.spans_hosts = groups.shards->spans_hosts(), .on_gpu = !options.device.is_cpu()});
  zero::Context context{.groups = groups,
                        .mesh = mesh,
                        .shard_axes = shard_axes,
                        .ledger = options.ledger,
                        .device = options.device,
                        .sharding = config::ShardingOf(zero, mesh.CountOver(shard_axes)),
                        .dtypes = dtypes,
                        .reduction = precision::MakeGradientReduction(
                            config, mesh.CountOver(topology::kGradientAxes)),
                        .budgets = MakeBudgets(zero, dtypes, overlap),
                        .secondary = MakeSecondaryGroups(zero, *groups.shards),
                        .quantized_weights = stage == 3 && zero.quantized_weights,
                        .quantized_frozen = stage == 3 && zero.quantized_frozen_weights,
                        .quantized_gradients = stage == 3 && zero.quantized_gradients,
                        .loco = zero.loco,
                        .blockwise_state = config.optimizer.blockwise_states,
                        .publish_elements = zero.allgather_bucket_size,
                        .overlap = overlap,
                        .tiers = tiers,
                        .copies = device::OpenCopyStreams(options.device, tiers.leaving_bytes)};
  context.windows = ChooseWindows(config, context, units);
  if (mesh.degrees().expert == 1) return context;
  context.of_experts = std::make_shared<zero::Context>(OfExperts(context, zero));
  return context;
}

std::vector<zero::ParameterUnit> ListUnits(const BlockList& model,
                                           const optim::ParameterGrouper& grouper,
                                           const EngineOptions& options) {
  return BuildUnits(model, grouper, options.recompute);
}
std::vector<zero::ParameterUnit> ListUnits(const UnitList& model,
                                           const optim::ParameterGrouper& grouper,
                                           const EngineOptions& /*options*/) {
  return BuildUnits(model, grouper);
}

// Returns the model's units. Their parameters have a group and know how their gradients are
// communicated.
template <typename Model>
StatusOr<std::vector<zero::ParameterUnit>> DescribeUnits(const Model& model,
                                                         const config::DsConfig& config,
                                                         const EngineOptions& options) {
  DS_ASSIGN_OR_RETURN(const optim::ParameterGrouper grouper, MakeGrouper(model, config, options));
  std::vector<zero::ParameterUnit> units = ListUnits(model, grouper, options);
  const precision::DtypePolicy dtypes = precision::MakeDtypePolicy(config);
  // From stage 1, as in DeepSpeed.
  if (dtypes.autocast && config.zero_optimization.stage > 0) {
    ReduceModulesIn(*dtypes.autocast, config.torch_autocast.lower_precision_safe_modules, model,
                    &units);
  }
  if (config.sparse_gradients) ReduceEmbeddingsByRows(model, &units);
  const config::ZeroConfig& zero = config.zero_optimization;
  if (zero.stage == 3) {
    RoundMatrices({.trained = zero.quantized_weights || zero.quantized_gradients,
                   .frozen = zero.quantized_frozen_weights},
                  &units);
  }
  return units;
}

StatusOr<ModuleBuffers> CastBuffers(StatusOr<ModuleBuffers> buffers,
                                    const config::DsConfig& config) {
  if (buffers.ok() && config.buffer_dtype) {
    buffers->Cast(precision::ToScalarType(*config.buffer_dtype));
  }
  return buffers;
}

// A buffer holds the inputs of one forward pass through one chunk.
Status CheckBufferedPartitions(const config::DsConfig& config, const EngineOptions& options,
                               const BlockList& model) {
  const auto& buffered = config.activation_checkpointing.buffered_parts;
  for (int chunk = 0; buffered && chunk < model.chunk_count(); ++chunk) {
    const models::BlockRange blocks = model.chunk(chunk);
    std::int64_t recomputed = 0;
    for (int i = blocks.first; i < blocks.end; ++i) {
      const int index = model.index_in_model(i);
      if (config::IsRecomputed(options.recompute, index, model.model_size())) ++recomputed;
    }
    DS_RETURN_IF_ERROR(config::CheckBufferedPartitions(*buffered, recomputed));
  }
  return OkStatus();
}

// ModelDescription is the model's input to ZeRO, before any rank holds state.
struct ModelDescription {
  std::vector<zero::ParameterUnit> units;
  std::vector<double> group_rates;
  ModuleBuffers buffers;
  zero::FillUnit fill;
};

// Describes the model on this rank. An error may concern this rank only. `buffers` are the model's.
template <typename Model>
Status DescribeUnitsAndBuffers(const Model& model, const config::DsConfig& config,
                               const EngineOptions& options, StatusOr<ModuleBuffers> buffers,
                               ModelDescription* described) {
  DS_ASSIGN_OR_RETURN(described->units, DescribeUnits(model, config, options));
  DS_ASSIGN_OR_RETURN(described->group_rates,
                      FollowGroupSchedules(config, options.group_rates, &described->units));
  DS_ASSIGN_OR_RETURN(described->buffers, CastBuffers(std::move(buffers), config));
  return OkStatus();
}

Status DescribeModel(const BlockList& model, const config::DsConfig& config,
                     const EngineOptions& options, const topology::Mesh& mesh,
                     ModelDescription* described) {
  DS_RETURN_IF_ERROR(CheckBufferedPartitions(config, options, model));
  DS_RETURN_IF_ERROR(CheckPipelineSupport(mesh, model, options.world->rank()));
  DS_RETURN_IF_ERROR(DescribeUnitsAndBuffers(
      model, config, options, ModuleBuffers::Find(model, options.device), described));
  DS_ASSIGN_OR_RETURN(described->fill, MakeFillUnit(model, described->units, options));
  return OkStatus();
}

Status DescribeModel(const UnitList& model, const config::DsConfig& config,
                     const EngineOptions& options, const topology::Mesh& mesh,
                     ModelDescription* described) {
  const topology::Degrees& degrees = mesh.degrees();
  if (degrees.sequence * degrees.tensor > 1) {
    return UnimplementedError(
        "a model of units is trained with data parallelism, ZeRO, pipeline stages and expert ranks "
        "only: sequence and tensor ranks need a model of blocks");
  }
  DS_RETURN_IF_ERROR(DescribeUnitsAndBuffers(
      model, config, options, ModuleBuffers::Take(model.buffers, options.device), described));
  DS_ASSIGN_OR_RETURN(described->fill, MakeFillUnit(model, described->units, options));
  return OkStatus();
}

// Ranks of a stage build alike and fail alike; ranks of different stages agree on a status.
StatusOr<std::unique_ptr<zero::ShardedModel>> ShardModel(const ModelDescription& described,
                                                         const zero::Context& context) {
  auto sharded = zero::ShardedModel::Create(context, described.units, described.fill);
  if (sharded.ok()) (*sharded)->AcceptGradients(false);  // only in Executor::TakeGradients
  if (context.groups.stage == nullptr) return sharded;
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(sharded.status(), *context.groups.all));
  return sharded;
}

// Counts the parameters of all stages; shared parameters count once.
std::int64_t CountParameters(const zero::ShardedModel& sharded, const topology::Mesh& mesh) {
  const std::int64_t own = sharded.trainable_numel() + sharded.frozen_numel();
  if (mesh.degrees().pipeline == 1) return own;
  comm::Communicator& world = *sharded.context().groups.all;
  const auto ranks = comm::GatherNumber(own, world);
  std::int64_t all = 0;
  for (const int rank : mesh.GroupOf(world.rank(), {topology::Axis::kPipeline})) {
    all += ranks[static_cast<std::size_t>(rank)];
  }
  return all;
}

// Checks the config against the model, the mesh and the device.
Status CheckConfig(const config::DsConfig& config, const EngineOptions& options, int chunks,
                   const topology::Mesh& mesh) {
  DS_RETURN_IF_ERROR(
      CheckEngineRules(config, {.skips_non_finite = options.non_finite == NonFinitePolicy::kSkip,
                                .schedule = options.schedule,
                                .chunks = chunks}));
  if (config.optimizer.blockwise_states && !options.device.is_cpu()) {
    return UnimplementedError(
        "state in 8 bits (optimizer.type Adam8bit, AdamW8bit) is built for CPU ranks only: choose "
        "AdamW here");
  }
  return CheckSecondaryShards(mesh, config.zero_optimization);
}

// Opens the channels to the other stages.
void OpenChannels(const config::PipelineConfig& pipeline, RankTopology* topology) {
  comm::Communicator& world = *topology->world;
  topology->channels.emplace(
      comm::GroupOver({topology::Axis::kPipeline}, "stages", topology->mesh, world),
      ChannelSharding{.tensor = FindTensorCommunicator(topology->mesh, world),
                      .activations = pipeline.pipe_partitioned,
                      .gradients = pipeline.grad_partitioned});
}

// Describes a model on a mesh; see DescribeModel.
using ModelDescriber = std::function<Status(
    const EngineOptions& options, const topology::Mesh& mesh, ModelDescription* described)>;

// Builds the components that the ranks of a job have to build together. `chunks` are the model's
// pipeline chunks on this rank. Collective.
Status BuildComponents(const ModelDescriber& describe, int chunks, const config::DsConfig& config,
                       const EngineOptions& options, EngineComponents* engine) {
  EngineResources& resources = engine->resources;
  RankTopology& topology = engine->topology;
  TrainedModel& model = engine->model;
  topology.world = options.world;
  DS_ASSIGN_OR_RETURN(topology.mesh, MakeMesh(options.degrees, config, options.world->size()));
  DS_RETURN_IF_ERROR(CheckConfig(config, options, chunks, topology.mesh));
  DS_RETURN_IF_ERROR(CheckTensorRanksAreEqual(topology.mesh, *options.world));
  ModelDescription described;
  DS_RETURN_IF_ERROR(
      comm::AgreeOnStatus(describe(options, topology.mesh, &described), *options.world));
  DS_ASSIGN_OR_RETURN(zero::Tiers tiers, OpenTiers(config, options, &resources.file_tiers));
  DS_ASSIGN_OR_RETURN(activation::Keeper keeper,
                      OpenKeeper(config, options, &resources.file_tiers));
  DS_RETURN_IF_ERROR(ReserveCores(config, options, &tiers, &resources.cores));
  const zero::Context context = MakeContext(config, options, topology.mesh, tiers, described.units);
  DS_ASSIGN_OR_RETURN(model.sharded, ShardModel(described, context));
  model.parameter_count = CountParameters(*model.sharded, topology.mesh);
  topology.virtual_stages = {options.schedule, topology.mesh.degrees().pipeline, chunks};
  if (context.groups.stage != nullptr) OpenChannels(config.pipeline, &topology);
  model.buffers = std::move(described.buffers);
  model.buffers.MakeEqual(*context.groups.gradients);
  model.optimizer = std::make_unique<zero::ShardedOptimizer>(*model.sharded, config.optimizer,
                                                             config.zero_optimization.zenflow);
  engine->step.rates = Rates(config, std::move(described.group_rates));
  engine->runner = BlockRunner({.checkpointing = config.activation_checkpointing,
                                .recompute = options.recompute,
                                .mlp_tiles = options.mlp_tiles,
                                .keeper = std::move(keeper),
                                .clock = options.clock});
  return OkStatus();
}

Status OpenFirstRanksMonitors(const config::DsConfig& config, const EngineOptions& options,
                              StepReporter* reporter) {
  if (options.world->rank() != 0) return OkStatus();
  DS_ASSIGN_OR_RETURN(reporter->monitors, OpenMonitors(config, *options.clock));
  return OkStatus();
}

void OpenMeasurements(const config::DsConfig& config, const EngineOptions& options,
                      bool prints_micro_batches, StepReporter* reporter) {
  const bool prints = options.world->rank() == 0;
  reporter->clock = options.clock;
  reporter->memory = MemoryMarks({.ledger = options.ledger,
                                  .meter = options.meter,
                                  .breakdown = config.memory_breakdown,
                                  .prints = prints});
  reporter->phases = PhaseTimers({.enabled = config.wall_clock_breakdown,
                                  .prints = prints,
                                  .prints_micro_batches = prints_micro_batches,
                                  .device = options.device,
                                  .clock = options.clock});
}

// Fills the step state, except for the rates.
void BeginSteps(const config::DsConfig& config, const EngineOptions& options, StepContext* step) {
  step->batch = config.batch;
  step->managed_accumulation = config.managed_gradient_accumulation;
  step->seed = options.seed;
  step->non_finite = options.non_finite;
  step->decides_on_device = options.decides_on_device.value_or(!options.device.is_cpu());
  step->loss_scaler = precision::MakeLossScaler(config);
}

StatusOr<std::unique_ptr<EngineComponents>> Build(const ModelDescriber& describe, int chunks,
                                                  const config::DsConfig& config,
                                                  EngineOptions options) {
  auto engine = std::make_unique<EngineComponents>();
  DS_RETURN_IF_ERROR(TakeWorldAndLedger(&options, &engine->resources));
  try {
    DS_RETURN_IF_ERROR(BuildComponents(describe, chunks, config, options, engine.get()));
    // All ranks have an optimizer at this point.
    DS_RETURN_IF_ERROR(comm::AgreeOnStatus(
        OpenFirstRanksMonitors(config, options, &engine->reporter), *options.world));
  } catch (const std::exception& error) {
    // Other ranks wait for this one; abort, even if the caller handles the exception.
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    options.world->Abort("building the engine: " +
                         std::string(of_torch ? of_torch->what_without_backtrace() : error.what()));
    throw;
  }
  engine->config = config;
  BeginSteps(config, options, &engine->step);
  const auto shared = static_cast<std::int64_t>(options.world->shared_bytes());
  engine->resources.shared_memory = device::LedgerEntry(
      options.ledger, device::MemoryUse::kCommBuffers, device::MemoryTier::kMapped, shared);
  OpenMeasurements(config, options, /*prints_micro_batches=*/!engine->topology.channels,
                   &engine->reporter);
  return engine;
}

}  // namespace

StatusOr<std::unique_ptr<EngineComponents>> BuildEngine(std::shared_ptr<BlockList> model,
                                                        const config::DsConfig& config,
                                                        EngineOptions options) {
  const auto describe = [&](const EngineOptions& opened, const topology::Mesh& mesh,
                            ModelDescription* described) {
    return DescribeModel(*model, config, opened, mesh, described);
  };
  DS_ASSIGN_OR_RETURN(std::unique_ptr<EngineComponents> engine,
                      Build(describe, model->chunk_count(), config, std::move(options)));
  engine->model.blocks = std::move(model);
  return engine;
}

StatusOr<std::unique_ptr<EngineComponents>> BuildEngine(const UnitList& model,
                                                        const config::DsConfig& config,
                                                        EngineOptions options) {
  const auto describe = [&](const EngineOptions& opened, const topology::Mesh& mesh,
                            ModelDescription* described) {
    return DescribeModel(model, config, opened, mesh, described);
  };
  return Build(describe, /*chunks=*/1, config, std::move(options));
}

}  // namespace ds::engine
