#pragma once

// Engine trains a model (a list of blocks) with ZeRO on one rank of a world. deepspeed_api.h and
// tensor_access.h have the rest of DeepSpeed's engine API.
//
//   auto engine = ds::Engine::create(model, config, {.world = &world}).value();
//   for (...) { auto loss = engine->forward(batch); engine->backward(loss); engine->step(); }
//
// A pipeline stage runs full steps only (TrainStep): there forward, backward and step throw.
// Every method except a plain getter is collective: all ranks call it in the same order. The engine
// owns the parameters' memory: outside forward and backward a parameter of the model may have no
// storage (ZeRO-3). Read weights through ExportParameters only.
//
// Threads: one at a time: the thread that drives the engine, or autograd's while that one waits for
// a backward pass. Errors: mistakes of the user and bad data are returned as a Status. LibTorch
// errors and a lost peer throw c10::Error; do not use the engine afterwards.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/stateful.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/engine/step_result.h"
#include "runtime/models/block.h"
#include "runtime/optim/groups/parameter_groups.h"
#include "runtime/plan/mesh/degrees.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::comm {
class Communicator;
}
namespace ds::device {
class ActivationMeter;
class MemoryLedger;
}  // namespace ds::device

namespace ds::engine {

class ChunkRunner;
struct EngineComponents;
struct UnitList;

// Fills `values` with the initial elements [first, first + values.numel()) of the parameter with
// the full name `name`. `values` is flat, contiguous, in the training dtype, on the engine's
// device.
using ValueReader =
    std::function<Status(const std::string& name, std::int64_t first, const at::Tensor& values)>;

// Takes one full parameter or buffer. `value` is on the CPU and valid during the call only.
using ParameterSink = std::function<Status(const std::string& name, const at::Tensor& value)>;

struct EngineOptions {
  // Borrowed. If null, the engine connects as the environment says (RANK, WORLD_SIZE, MASTER_ADDR,
  // ..., set by dsrun) and owns the connection. Ranks of several hosts meet over the rank link,
  // which serves one engine per process.
  comm::Communicator* world = nullptr;
  bool encrypt = false;                      // traffic between hosts, if the engine connects
  std::optional<topology::Degrees> degrees;  // of `world`; absent: by config (make_mesh.h)
  device::MemoryLedger* ledger = nullptr;    // borrowed, counts buffers; null: one of its own
  device::ActivationMeter* meter = nullptr;  // borrowed, of this ledger; null: no measurement
  // The device of the world's tensors; c10::kCUDA without an index is this rank's GPU.
  c10::Device device = c10::kCPU;
  std::optional<bool> decides_on_device;  // clip and skip on the device; absent: on a GPU only
  // Source of the initial values of all parameters; each rank reads only the ranges that it stores.
  // If empty, parameters that have data keep rank 0's values, and blocks without data get the
  // values of Block::Initialize(seed).
  ValueReader read_values;
  std::uint64_t seed = 1234;  // of initial values and of the blocks' random numbers
  NonFinitePolicy non_finite = NonFinitePolicy::kAsConfigured;
  config::RecomputeChoice recompute;  // which activations are recomputed
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::kOneForwardOneBackward;  // of stages
  std::int64_t mlp_tiles = 1;  // of built-in feed-forward layers: RowTiles::count
  std::string sp_offload;      // attention chunks: "" (device), "cpu" or a folder (OpenKeeper)
  std::function<void(const std::string&)> notify;  // receives one-time notices to the user
  const Clock* clock = &Clock::System();           // for monitors and all time measurements
  // Assigns parameters their own learning rate or weight decay.
  optim::ParameterGrouper parameter_group = optim::OneGroup;
  // For groups whose rates the caller sets apart (DeepSpeedApi::set_group_rates): the rate of each,
  // nullopt for the config's. parameter_group names a parameter's group in
  // ParameterGroup::schedule. A schedule of the config begins at these rates, or writes its own to
  // all, as in DeepSpeed.
  std::vector<std::optional<double>> group_rates = {};
};

class Engine {
 public:
  // Builds the shards unit by unit: at stage 3 memory holds at most the shards and one unit.
  // Parameters with requires_grad false are stored and saved, but never changed.
  //
  // Fails if values cannot be read, the config asks for an unsupported feature, or another engine
  // still trains a parameter of the model. In the last case reset the pointer to that engine before
  // you assign a new one to it. All ranks return the same status. If one rank throws, all throw,
  // and their world has ended.
  static StatusOr<std::unique_ptr<Engine>> create(std::shared_ptr<BlockList> model,
                                                  const config::DsConfig& config,
                                                  EngineOptions options = {});
  // The same for a model that the caller runs; UnitPasses tells the engine of its passes, and
  // `forward` throws. It is trained with data parallelism, ZeRO, pipeline stages and expert ranks.
  // All parameters have values on every rank, and those of a stage's first rank are kept, for an
  // expert the values of the first rank with it, unless options.read_values or the list provides
  // them.
  static StatusOr<std::unique_ptr<Engine>> create(const UnitList& model,
                                                  const config::DsConfig& config,
                                                  EngineOptions options = {});
  ~Engine();

  // Runs the blocks and returns the loss that the last one set: a scalar, the mean over this
  // micro-batch. Its weight in the step is Bundle::loss_count: for language models the step's loss
  // is the mean over all labels that are not ignored. Evaluates only, without recording gradients,
  // under c10::NoGradGuard.
  at::Tensor forward(Bundle batch);

  // Accumulates the gradients of loss / gradient_accumulation_steps, or, with scale_wrt_gas false,
  // of a loss that the caller has divided. `loss` is the latest result of forward, or computed from
  // it. With `retain_graph`, another backward pass through its graph is possible.
  void backward(const at::Tensor& loss, bool scale_wrt_gas = true, bool retain_graph = false);

  // After the last micro-batch of a step (or, with managed_gradient_accumulation false, at each
  // call): reduces the remaining gradients, clips, updates the parameters, advances the schedule.
  // Before that it only returns StepResult::boundary false. A non-finite gradient that may not be
  // skipped is an error with the step, parameter, rank and micro-step.
  StatusOr<StepResult> step();

  // Gathers block by block and passes each parameter once to `sink` on rank 0, in the training
  // dtype and under its full name, then the stage's buffers. All ranks return the same status.
  Status ExportParameters(const ParameterSink& sink);

  // The engine's part of checkpoints: fp32 weights, module buffers (rank 0's, which all ranks adopt
  // when saving), optimizer state, step, schedule. Saving fails inside a step, because its
  // micro-batches would be lost. Loading drops the micro-batches of the step in progress.
  checkpoint::Stateful& state();

  std::int64_t finished_steps() const;  // over the whole run, including its checkpoints
  std::int64_t gradient_accumulation_steps() const;
  std::int64_t parameter_count() const;  // of the full model, without padding
  comm::Communicator& world() const;
  const device::MemoryLedger& ledger() const;
  // The report of memory_breakdown (MemoryMarks::breakdown).
  const nlohmann::ordered_json& memory_breakdown() const;

 private:
  friend class ChosenState;
  friend class DeepSpeedApi;
  friend class Executor;
  friend class GatheredParameters;
  friend class TensorAccess;
  friend class UnitPasses;
  friend StatusOr<Evaluation> Evaluate(Engine& engine,
                                       const std::function<StatusOr<Bundle>()>& next_batch,
                                       std::int64_t micro_batches);
  friend StatusOr<Evaluation> Evaluate(Engine& engine, ChunkRunner& runner,
                                       const std::function<StatusOr<Bundle>()>& next_batch,
                                       std::int64_t micro_batches);
  explicit Engine(std::unique_ptr<EngineComponents> components);
  std::unique_ptr<EngineComponents> components_;
  std::unique_ptr<checkpoint::Stateful> state_;
};

}  // namespace ds::engine

namespace ds {
using engine::Engine;
using engine::EngineOptions;
using engine::StepResult;
}  // namespace ds
