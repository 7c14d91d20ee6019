#pragma once

// BuildEngine implements Engine::create as a sequence of passes: world and ledger, device, units of
// the model's blocks, parameter groups, buffers, initial values, shards, optimizer.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/stateful.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/engine_parts.h"
#include "runtime/models/block.h"
#include "runtime/offload/file_tier.h"
#include "runtime/optim/groups/parameter_groups.h"
#include "runtime/plan/zero/tiers.h"
#include "runtime/zero/parameter_unit.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

// Builds the engine that Engine::create returns. Collective: all ranks return the same status. An
// exception on one rank (out of memory, a user's function) aborts the world of all ranks with its
// message (Communicator::Abort).
StatusOr<std::unique_ptr<EngineParts>> BuildEngine(std::shared_ptr<BlockList> model,
                                                   const config::DsConfig& config,
                                                   EngineOptions options);

// The passes below have their own source files and run in this order.

// BuildUnits converts a model to the units that ZeRO manages. Two more functions select parameters,
// by the module that registered them, and change how their gradients are communicated.

// Makes one unit per block. Parameters keep their registration order and have their full names. The
// block determines each placement and `group_of` each parameter group. A recomputed block reads its
// parameters in the backward pass, too.
std::vector<zero::ParameterUnit> BuildUnits(
    const BlockList& model, const optim::ParameterGrouper& group_of = optim::OneGroup,
    const config::RecomputeChoice& recompute = {});

// Communicates the gradients of modules of these classes (PyTorch's names) in `dtype`:
// torch_autocast.lower_precision_safe_modules. The gradient of an embedding table is not affected,
// even if the head shares the table.
void ReduceModulesIn(at::ScalarType dtype, const std::vector<std::string>& classes,
                     const BlockList& model, std::vector<zero::ParameterUnit>* units);

// Communicates the gradients of embedding tables by rows (sparse_gradients). Tables that another
// block also reads are excluded: a head's gradient has no zero rows.
void ReduceEmbeddingsByRows(const BlockList& model, std::vector<zero::ParameterUnit>* units);

// Selects the matrices that are communicated (trained) or stored (frozen) in quantized form
// (ZeRO++), as DeepSpeed does. Biases and norms are never quantized: they are small, and their
// values have a different range.
struct RoundedMatrices {
  bool trained = false;
  bool frozen = false;
};
void RoundMatrices(const RoundedMatrices& which, std::vector<zero::ParameterUnit>* units);

// Chooses how often a stage gathers and reduces its units in a step (plan/zero/step_windows.h).
zero::StepWindows ChooseWindows(const config::DsConfig& config, const zero::Context& context,
                                const std::vector<zero::ParameterUnit>& units);

// FollowGroupSchedules assigns parameter groups to schedules of their own: one for each number in
// the lists in scheduler.params, or one for each half of Muon.
//
// Groups are the distinct ParameterGroups of the trained parameters, numbered by first occurrence
// in the model. Under Muon its matrices come first. DeepSpeed's engine and common scripts use the
// same order (parameters with decay, then those without).

// Gives each trained parameter the schedule of its group. The lists then determine the rate: the
// parameter's factor becomes 1, because lists replace a group's own rate in DeepSpeed. Returns the
// groups' own rates, at which a schedule may still begin or end. Returns an empty vector if all
// parameters share one rate.
//
// Without lists, Muon's matrices are the first group and AdamW's parameters the second. Both follow
// the same schedule: a number in it is the rate of both groups, as in DeepSpeed. Fails if the lists
// have another number of entries than the model has groups.
StatusOr<std::vector<double>> FollowGroupSchedules(const config::DsConfig& config,
                                                   std::vector<zero::ParameterUnit>* units);

// OpenTiers translates offload_param and offload_optimizer of a config to tiers for ZeRO's stores.

// Opens this rank's files and appends them to `files`, which must outlive the tensors stored in
// them. Reports through options.notify where tensors are stored. All ranks return the same status.
// Requires options.world and options.ledger. Collective.
StatusOr<zero::Tiers> OpenTiers(const config::DsConfig& config, const EngineOptions& options,
                                std::vector<std::unique_ptr<offload::FileTier>>* files);

// Makes the keeper for the tensors that chunked attention saves (EngineOptions::portions_in): on
// the device, in pinned host memory, or in a file of this rank in that folder. Reports through
// options.notify where they are stored. All ranks return the same status. Collective.
StatusOr<activation::Keeper> OpenKeeper(const config::DsConfig& config,
                                        const EngineOptions& options,
                                        std::vector<std::unique_ptr<offload::FileTier>>* files);

// ReserveCores implements offload_optimizer.cpuadam_cores_perc and zenflow.pt_reserved_cores_perc.

// Reserves cores for updates that overlap the computation. The cores are taken from those that this
// thread may run on, or from this rank's share if ranks of the host share cores. Binds this thread
// and its pool to the remaining cores; `own` must be destroyed on this thread and restores the
// binding. Reports the cores, or why none are reserved, through options.notify. All ranks reserve
// cores or none does. Collective.
Status ReserveCores(const config::DsConfig& config, const EngineOptions& options,
                    zero::Tiers* tiers, EngineResources* own);

// MakeFillUnit chooses the source of each unit's initial values.

// The sources are, in this order: EngineOptions::read_values; the values of the user's own modules
// on rank 0, or those that the block's factory makes; Block::Initialize. Call it before ZeRO moves
// the parameters, while it can be seen which parameters have values. The arguments must outlive the
// result. Fails if only some parameters of a block have values.
StatusOr<zero::FillUnit> MakeFillUnit(const BlockList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options);

// EngineState is the engine's part of checkpoints (contents: Engine::state).

class EngineState : public checkpoint::Stateful {
 public:
  // `parts` must outlive this object.
  explicit EngineState(EngineParts& parts) : parts_(parts) {}

  std::string_view state_name() const override { return "engine"; }
  Status CheckSavable() const override;
  void AddShards(std::vector<checkpoint::TensorShard>* shards) override;
  nlohmann::json State() const override;
  Status CheckState(const nlohmann::json& state) const override;
  void ExpectState(const nlohmann::json& state) override;
  Status LoadState(const nlohmann::json& state) override;

 private:
  EngineParts& parts_;
};

}  // namespace ds::engine
