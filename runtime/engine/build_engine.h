#pragma once

// BuildEngine: what Engine::create does, pass by pass: the world and the ledger, the device, units
// of the model's blocks, the groups of their parameters, buffers, first values, shards, optimizer.

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

// Builds what Engine::create promises. Collective: all ranks return the same status. What throws on
// one rank (its memory, a function of the user's) ends the world of all of them with its reason
// (Communicator::Abort).
StatusOr<std::unique_ptr<EngineParts>> BuildEngine(std::shared_ptr<BlockList> model,
                                                   const config::DsConfig& config,
                                                   EngineOptions options);

// These passes of it have a file of their own, and come in this order.

// BuildUnits turns a model into what ZeRO sees of it. Two more functions mark the parameters whose
// gradients go between ranks in a way of their own, by the modules that have registered them.

// Makes one unit per block, parameters under their full names in the order they were registered,
// each placed as its block says and in the group that `group_of` says. What is computed again reads
// its parameters backwards.
std::vector<zero::ParameterUnit> BuildUnits(
    const BlockList& model, const optim::ParameterGrouper& group_of = optim::OneGroup,
    const config::RecomputeChoice& recompute = {});

// Has the gradients of modules of these classes (PyTorch's names) travel in `dtype`:
// torch_autocast.lower_precision_safe_modules. An embedding table is no such module's, whatever
// head reads it too.
void ReduceModulesIn(at::ScalarType dtype, const std::vector<std::string>& classes,
                     const BlockList& model, std::vector<zero::ParameterUnit>* units);

// Has the gradients of embedding tables that no other block reads travel by rows: sparse_gradients.
// A head's gradient has no row of zeros.
void ReduceEmbeddingsByRows(const BlockList& model, std::vector<zero::ParameterUnit>* units);

// Lets trained matrices travel rounded (ZeRO++), as DeepSpeed does, and frozen ones be kept so:
// biases and norms, whose numbers are few and of another size, stay as they are.
struct RoundedMatrices {
  bool trained = false;
  bool frozen = false;
};
void RoundMatrices(const RoundedMatrices& which, std::vector<zero::ParameterUnit>* units);

// Chooses how often a stage gathers and reduces its units in a step (plan/zero/step_windows.h).
zero::StepWindows ChooseWindows(const config::DsConfig& config, const zero::Context& context,
                                const std::vector<zero::ParameterUnit>& units);

// Parameter groups whose rates follow a schedule on their own: those that lists in scheduler.params
// have numbers for, and Muon's halves.
//
// Groups are what ParameterGroup tells apart among the trained parameters, numbered as they first
// occur in the model, under Muon its matrices first: as DeepSpeed's engine and the usual scripts
// order theirs (what decays, then what does not).

// Gives each trained parameter the schedule of its group, whose rate the lists then say: its factor
// becomes 1, as the lists replace a group's own rate in DeepSpeed. Returns the groups' own rates,
// which a schedule may still begin or end at; nothing where all parameters follow one rate. Without
// lists Muon's matrices are the first group and what AdamW updates is the second, under the one
// schedule: a number in it is the rate of both, as in DeepSpeed. Fails when the model has not as
// many groups as the lists have numbers.
StatusOr<std::vector<double>> FollowGroupSchedules(const config::DsConfig& config,
                                                   std::vector<zero::ParameterUnit>* units);

// OpenTiers: offload_param and offload_optimizer of a config, as tiers for ZeRO's stores.

// Opens this rank's files, which come into `files` and outlive what rests in them, and says in
// notices what rests where. All ranks return the same status. Requires the options' world and
// ledger. Collective.
StatusOr<zero::Tiers> OpenTiers(const config::DsConfig& config, const EngineOptions& options,
                                std::vector<std::unique_ptr<offload::FileTier>>* files);

// Makes the keeper of EngineOptions::portions_in, of what attention by portions keeps of a sample:
// on the device, in pinned memory of the host, or in a file of this rank in that folder. Says in a
// notice what waits where. All ranks return the same status. Collective.
StatusOr<activation::Keeper> OpenKeeper(const config::DsConfig& config,
                                        const EngineOptions& options,
                                        std::vector<std::unique_ptr<offload::FileTier>>* files);

// ReserveCores: offload_optimizer.cpuadam_cores_perc and zenflow.pt_reserved_cores_perc.

// Gives what updates beside the computation cores of its own, out of those that this thread may run
// on, or of this rank's part of them where ranks of the host share them; and binds this thread and
// its pool to the rest until `own` ends, on this thread. Says in a notice which, or why none are
// reserved: all ranks do alike. Collective.
Status ReserveCores(const config::DsConfig& config, const EngineOptions& options,
                    zero::Tiers* tiers, EngineResources* own);

// MakeFillUnit: where each unit's first values come from.

// EngineOptions::read_values first; then what the user's own modules have, rank 0's of them, or
// what the block's factory makes; then Block::Initialize's. Asks before ZeRO moves the parameters,
// when it can be seen which of them have values. Arguments outlive the result. Refuses a block of
// which only some parameters have values.
StatusOr<zero::FillUnit> MakeFillUnit(const BlockList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options);

// EngineState: the engine's part of checkpoints (Engine::state says what it holds).

class EngineState : public checkpoint::Stateful {
 public:
  // `parts` outlives this.
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
