#pragma once

// Engine: trains a model that is a list of blocks, with ZeRO, on one rank of a world. What else
// DeepSpeed's engine offers is in deepspeed_api.h and tensor_access.h.
//
//   auto engine = ds::Engine::create(model, config, {.world = &world}).value();
//   for (...) { auto loss = engine->forward(batch); engine->backward(loss); engine->step(); }
//
// A stage of a pipeline has whole steps only (train_step.h): there the three throw.
// Every method but the plain getters is collective: all ranks call it in the same order. The engine
// owns the parameters' memory: outside forward and backward a parameter of the model may have no
// bytes (ZeRO-3), so read weights through ExportParameters only.
//
// Threads: one thread per rank drives its engine. Errors: what a user or the data can cause is a
// Status; LibTorch and a lost peer throw c10::Error, after which the engine must not be used.

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

struct EngineParts;

// Fills `values`, flat, contiguous, of the training dtype and on the engine's device, with the
// elements [first, first + values.numel()) that a parameter starts with; `name` is its full one.
using ValueReader =
    std::function<Status(const std::string& name, std::int64_t first, const at::Tensor& values)>;

// Takes one whole parameter or buffer; `value` is on the CPU and valid during the call only.
using ParameterSink = std::function<Status(const std::string& name, const at::Tensor& value)>;

struct EngineOptions {
  // Borrowed. Null: the engine connects as the environment says (RANK, WORLD_SIZE, MASTER_ADDR,
  // ..., as dsrun sets it) and owns the connection. Ranks of several hosts meet over the rank link,
  // which serves one engine of a process.
  comm::Communicator* world = nullptr;
  bool encrypt = false;                      // where the engine connects: what goes between hosts
  std::optional<topology::Degrees> degrees;  // cut `world`. Absent: as the config (make_mesh.h)
  device::MemoryLedger* ledger = nullptr;    // borrowed; has its buffers. Null: one of its own
  device::ActivationMeter* meter = nullptr;  // borrowed; of this ledger. Null: nobody measures
  // Names the device of the world's tensors; c10::kCUDA without an index is this rank's GPU.
  c10::Device device = c10::kCPU;
  std::optional<bool> decides_on_device;  // who clips and skips steps; absent: a GPU does
  // The first values of all parameters: each rank asks for what it keeps, and for nothing else.
  // Empty: a parameter that has data keeps rank 0's, a block without data the values of
  // Block::Initialize(seed).
  ValueReader read_values;
  std::uint64_t seed = 1234;  // of first values and of what blocks draw
  NonFinitePolicy non_finite = NonFinitePolicy::kAsConfigured;
  config::RecomputeChoice recompute;  // activations that are not kept
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::kOneForwardOneBackward;  // of stages
  std::int64_t mlp_tiles = 1;  // of the known families' feed-forward parts: RowTiles::count
  std::string portions_in;     // of attention: "" (the device), "cpu" or a folder (OpenKeeper)
  std::function<void(const std::string&)> notify;  // takes what the user should read once
  const Clock* clock = &Clock::System();           // measures how long they take
  // Parameters with a rate or a weight decay of their own.
  optim::ParameterGrouper parameter_group = optim::OneGroup;
};

class Engine {
 public:
  // Builds the shards unit by unit, so that at stage 3 no more than the shards and one unit are in
  // memory. Parameters with requires_grad false are kept and saved, never changed. Fails when
  // values cannot be read, the config asks for what is not built, or another engine still trains a
  // parameter of the model: reset that one before its pointer takes a new one. All ranks return the
  // same status; where one throws, all do, and their world has ended.
  static StatusOr<std::unique_ptr<Engine>> create(std::shared_ptr<BlockList> model,
                                                  const config::DsConfig& config,
                                                  EngineOptions options = {});
  ~Engine();

  // Runs the blocks; returns the loss that the last one set: a scalar, the mean over this
  // micro-batch. In the step it counts as much as the block says (Bundle::loss_count): a language
  // model's step has the mean over all its labels that are not ignored. Without gradient recording
  // (c10::NoGradGuard) it evaluates.
  at::Tensor forward(Bundle batch);

  // Accumulates the gradients of loss / gradient_accumulation_steps, or, without scale_wrt_gas, of
  // the loss as it is, which its caller has divided. It is forward's latest, or computed from it.
  void backward(const at::Tensor& loss, bool scale_wrt_gas = true);

  // After the last micro-batch of a step (or, with managed_gradient_accumulation false, always):
  // reduces what is not yet reduced, clips, updates the parameters, advances the schedule. Before
  // that it only says so (StepResult::boundary). A non-finite gradient that may not be skipped is
  // an error naming step, parameter, rank and micro-step.
  StatusOr<StepResult> step();

  // Gathers block by block and hands each parameter once, in the training dtype and under its full
  // name, to `sink` on rank 0, and then a stage's buffers. All ranks return the same status.
  Status ExportParameters(const ParameterSink& sink);

  // The engine's part of checkpoints: fp32 weights, the modules' buffers (rank 0's, which all ranks
  // have from then on), the optimizer's state, step, schedule. Not savable inside a step, whose
  // micro-batches would be lost; loading drops those of the step in progress.
  checkpoint::Stateful& state();

  std::int64_t finished_steps() const;  // counted over the whole run, checkpoints included
  std::int64_t gradient_accumulation_steps() const;
  std::int64_t parameter_count() const;  // of the whole model, padding not counted
  comm::Communicator& world() const;
  const device::MemoryLedger& ledger() const;
  // Has what memory_breakdown asks for (MemoryMarks::breakdown).
  const nlohmann::ordered_json& memory_breakdown() const;

 private:
  friend class DeepSpeedApi;
  friend class Executor;
  friend class TensorAccess;
  friend Status WithGatheredParameters(Engine& engine, const std::vector<std::string>& names,
                                       std::optional<int> modifier_rank,
                                       const std::function<Status()>& body);
  explicit Engine(std::unique_ptr<EngineParts> parts);
  std::unique_ptr<EngineParts> parts_;
  std::unique_ptr<checkpoint::Stateful> state_;
};

}  // namespace ds::engine

namespace ds {
using engine::Engine;
using engine::EngineOptions;
using engine::StepResult;
}  // namespace ds
