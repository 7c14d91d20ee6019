#pragma once

// EngineParts: the state of an Engine, for the files that implement it.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/autograd/recompute.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/device/thread_cores.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/loss_scaler.h"
#include "runtime/engine/memory_marks.h"
#include "runtime/engine/module_buffers.h"
#include "runtime/engine/monitor.h"
#include "runtime/engine/rates.h"
#include "runtime/engine/report/phase_timers.h"
#include "runtime/engine/stage_channels.h"
#include "runtime/engine/step_state.h"
#include "runtime/offload/file_tier.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "runtime/zero/optimizer/update_thread.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

// Holds what the engine has of its own where its caller gives nothing, and what ends behind all
// that refers to it.
struct EngineResources {
  std::unique_ptr<comm::Communicator> world;
  std::unique_ptr<device::MemoryLedger> ledger;
  // They hold what is offloaded (OpenTiers), which ends before them.
  std::vector<std::unique_ptr<offload::FileTier>> file_tiers;
  device::LedgerEntry shared_memory;                  // of the communicators
  std::unique_ptr<zero::UpdateThread> update_thread;  // ReserveCores
  std::optional<device::BoundPool> compute_cores;
};

// Says how the executor runs blocks.
struct BlockRuns {
  std::uint64_t seed = 0;  // of what they draw
  config::RecomputeChoice recompute;
  std::int64_t mlp_tiles = 1;
  activation::Keeper keeper;  // of attention by portions
  const Clock* clock = nullptr;
  // By block, of those that have been computed again; with activation_checkpointing.profile. A
  // graph may still refer to its entries when they are read.
  std::map<int, activation::RunTimes> recompute_times;
  // It is the forward pass's that is under way (activation_checkpointing.buffered_parts).
  std::optional<activation::KeptBuffer> kept_buffer;
  // A forward pass has come to its end without a block that reads what it has not declared.
  bool reads_are_declared = false;
};

struct EngineParts {
  EngineResources own;  // declared first, for what follows refers to them
  std::shared_ptr<BlockList> model;
  config::DsConfig config;
  topology::Mesh mesh;
  std::optional<StageChannels> channels;  // to the other stages; none: there is one stage
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
  std::vector<std::unique_ptr<Monitor>> monitors;  // on the first rank
  bool states_away = false;                        // on the host
  bool gathered = false;                           // within WithGatheredParameters

  comm::Communicator& world() const { return *sharded->context().groups.all; }

  Accumulation accumulation() const {
    return {.micro_batches = config.batch.gradient_accumulation_steps,
            .managed = config.managed_gradient_accumulation};
  }
  int stage() const { return sharded->context().stage(); }
  // Lists the ranks that know the losses, those with the model's last block, over these axes from
  // where this rank stands along the others.
  std::vector<int> LossRanksOver(topology::AxisSet axes) const {
    topology::Coordinates place = mesh.CoordinatesOf(world().rank());
    place[static_cast<std::size_t>(topology::Axis::kPipeline)] =
        virtual_stages.PlaceOf(virtual_stages.count() - 1).stage;
    return mesh.GroupOf(mesh.RankAt(place), axes);
  }
  // Throws where a stage cannot do by itself what `what` is.
  void CheckIsWhole(const char* what) const;
  // Brings back what offload_states has taken away; before whatever needs the model's state.
  // Refused where that would take away what WithGatheredParameters' body sees. Not collective.
  Status ReloadStates() {
    DS_RETURN_IF_ERROR(CheckNotGathered());
    if (states_away) optimizer->MoveBack();
    states_away = false;
    return OkStatus();
  }
  Status CheckNotGathered() const;
  // Refuses what writes weights while every rank has others.
  Status CheckWeightsAreAlike() const;
  // Reduces the gradients unless that is done: the mean over ranks (or what the optimizer takes in
  // its place) is there after this. Fails before the boundary. Collective.
  Status ReduceGradientsOnce();

  // The factor of a micro-batch's loss in its backward.
  double backward_scale(bool scale_wrt_gas) const {
    const std::int64_t gas = scale_wrt_gas ? config.batch.gradient_accumulation_steps : 1;
    return loss_scaler.scale() / static_cast<double>(gas);
  }
  // The labels by whose number losses are weighted: the same on every rank without asking, as the
  // step before says it. It keeps weights near 1, so that fp16 sees of a gradient what it would see
  // of a mean's.
  double loss_unit() const {
    constexpr std::int64_t kLabelsOfASample = 512;  // a guess, for the first step
    const std::int64_t labels =
        step.counts.most_labels > 0
            ? step.counts.most_labels
            : kLabelsOfASample * config.batch.train_micro_batch_size_per_gpu;
    return static_cast<double>(labels);
  }
  // Takes the mean of the ranks' weights, unless it is known. Collective.
  void AgreeOnWeight();
  // Tells what the reduced gradients are to be divided by. Requires AgreeOnWeight.
  double gradient_unit() const { return loss_scaler.scale() * step.current.mean_weight.value(); }
  // Has the backward pass that follows, the last of the step, update the model. Collective.
  Status BeginUpdate();
  // Makes `result`, whose gradient is not finite, the step without an update that config and policy
  // want, or says why the run ends.
  Status HandleNonFinite(StepResult* result);
  // Tells the monitors of the step that has ended.
  Status WriteMonitors(const StepResult& result) const;
  // The next update's numbers.
  optim::Update MakeUpdate(double clip, std::vector<optim::ScheduledValues> scheduled) const;
};

}  // namespace ds::engine
