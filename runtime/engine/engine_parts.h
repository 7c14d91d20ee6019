#pragma once

// EngineParts is the state of an Engine, for the files that implement it.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/autograd/recompute.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/loss_scaler.h"
#include "runtime/engine/memory_marks.h"
#include "runtime/engine/module_buffers.h"
#include "runtime/engine/monitor.h"
#include "runtime/engine/rates.h"
#include "runtime/engine/report/phase_timers.h"
#include "runtime/engine/reserved_cores.h"
#include "runtime/engine/stage_channels.h"
#include "runtime/engine/step_state.h"
#include "runtime/offload/file_tier.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

// Resources that the engine creates if its caller provides none, and resources that must outlive
// all other parts.
struct EngineResources {
  std::unique_ptr<comm::Communicator> world;
  std::unique_ptr<device::MemoryLedger> ledger;
  // Storage of offloaded tensors (OpenTiers), which must be destroyed before the files.
  std::vector<std::unique_ptr<offload::FileTier>> file_tiers;
  device::LedgerEntry shared_memory;  // of the communicators
  ReservedCores cores;
};

// BlockRuns configures how the executor runs blocks.
struct BlockRuns {
  std::uint64_t seed = 0;  // of the blocks' random numbers
  config::RecomputeChoice recompute;
  std::int64_t mlp_tiles = 1;
  activation::Keeper keeper;  // for chunked attention
  const Clock* clock = nullptr;
  // Times by block, for recomputed blocks, with activation_checkpointing.profile. An autograd graph
  // may still refer to the entries when they are read.
  std::map<int, activation::RunTimes> recompute_times;
  // The buffer of the forward pass in progress (activation_checkpointing.buffered_parts).
  std::optional<activation::KeptBuffer> kept_buffer;
  // True after one forward pass in which no block read parameters that it had not declared.
  bool reads_are_declared = false;
};

struct EngineParts {
  EngineResources own;  // declared first, because the other members refer to it
  std::shared_ptr<BlockList> model;
  config::DsConfig config;
  topology::Mesh mesh;
  std::optional<StageChannels> channels;  // to the other stages; nullopt with a single stage
  pipeline::VirtualStages virtual_stages;
  std::int64_t parameter_count = 0;  // of all stages
  ModuleBuffers buffers;
  std::unique_ptr<zero::ShardedModel> sharded;
  std::unique_ptr<zero::ShardedOptimizer> optimizer;

  Rates rates{config::DsConfig{}, {}};
  precision::LossScaler loss_scaler{{}};
  NonFinitePolicy non_finite = NonFinitePolicy::kAsConfigured;
  bool decides_on_device = false;  // EngineOptions
  BlockRuns blocks;

  StepState step;
  MemoryMarks memory;
  PhaseTimers phases;
  std::vector<std::unique_ptr<Monitor>> monitors;  // on rank 0
  bool states_away = false;                        // offloaded to the host
  bool gathered = false;                           // within WithGatheredParameters

  comm::Communicator& world() const { return *sharded->context().groups.all; }

  Accumulation accumulation() const {
    return {.micro_batches = config.batch.gradient_accumulation_steps,
            .managed = config.managed_gradient_accumulation};
  }
  int stage() const { return sharded->context().stage(); }
  // Returns the ranks that have the losses (those with the model's last block) over these axes. The
  // coordinates along the other axes are this rank's.
  std::vector<int> LossRanksOver(topology::AxisSet axes) const {
    topology::Coordinates place = mesh.CoordinatesOf(world().rank());
    place[static_cast<std::size_t>(topology::Axis::kPipeline)] =
        virtual_stages.PlaceOf(virtual_stages.count() - 1).stage;
    return mesh.GroupOf(mesh.RankAt(place), axes);
  }
  // Throws if the engine is one of several pipeline stages, which cannot run `what` by itself.
  void CheckIsWhole(const char* what) const;
  // Moves offloaded states back to the device. Call it before an operation that needs the model's
  // state. Fails while the body of WithGatheredParameters runs, because it would invalidate the
  // gathered parameters. Not collective.
  Status ReloadStates() {
    DS_RETURN_IF_ERROR(CheckNotGathered());
    if (states_away) optimizer->MoveBack();
    states_away = false;
    return OkStatus();
  }
  Status CheckNotGathered() const;
  // Fails if the ranks' weights differ; called before weights are set.
  Status CheckWeightsAreAlike() const;
  // Reduces the gradients unless they are reduced already. Afterwards they are the mean over ranks,
  // or the optimizer's substitute for it. Fails before the boundary. Collective.
  Status ReduceGradientsOnce();

  // The factor of a micro-batch's loss in its backward.
  double backward_scale(bool scale_wrt_gas) const {
    const std::int64_t gas = scale_wrt_gas ? config.batch.gradient_accumulation_steps : 1;
    return loss_scaler.scale() / static_cast<double>(gas);
  }
  // The number of labels that loss weights are relative to. It comes from the previous step, so all
  // ranks agree without communication. It keeps weights near 1, so that fp16 gradients have the
  // magnitude of a mean's gradients.
  double loss_unit() const {
    constexpr std::int64_t kLabelsOfASample = 512;  // a guess, for the first step
    const std::int64_t labels =
        step.counts.most_labels > 0
            ? step.counts.most_labels
            : kLabelsOfASample * config.batch.train_micro_batch_size_per_gpu;
    return static_cast<double>(labels);
  }
  // Computes the mean of the ranks' weights, unless it is known. Collective.
  void AgreeOnWeight();
  // Returns the divisor of the reduced gradients. Requires AgreeOnWeight.
  double gradient_unit() const { return loss_scaler.scale() * step.current.mean_weight.value(); }
  // Makes the next backward pass, the last of the step, update the model. Collective.
  Status BeginUpdate();
  // Handles a gradient that is not finite as the config and policy say: turns `result` into a step
  // without an update, or returns the error that ends the run.
  Status HandleNonFinite(StepResult* result);
  // Writes the finished step to the monitors.
  Status WriteMonitors(const StepResult& result) const;
  // Returns the parameters of the next update.
  optim::Update MakeUpdate(double clip, std::vector<optim::ScheduledValues> scheduled) const;
};

}  // namespace ds::engine
