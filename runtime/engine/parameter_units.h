#pragma once

// Functions that convert a model to the units that ZeRO manages. BuildUnits makes one unit per
// block. Further functions change how the gradients of selected parameters are communicated
// (ReduceModulesIn and others), assign parameter groups to schedules (FollowGroupSchedules) and
// choose the source of the initial values (MakeFillUnit).

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/unit_list.h"
#include "runtime/models/block.h"
#include "runtime/optim/groups/parameter_groups.h"
#include "runtime/zero/parameter_unit.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

// Makes one unit per block. Parameters keep their registration order and have their full names. The
// block determines each placement and `group_of` each parameter group. A recomputed block reads its
// parameters in the backward pass, too.
std::vector<zero::ParameterUnit> BuildUnits(
    const BlockList& model, const optim::ParameterGrouper& group_of = optim::OneGroup,
    const config::RecomputeChoice& recompute = {});

// Makes one unit of each in the list. The parameters are unsplit; ranks may have other experts.
std::vector<zero::ParameterUnit> BuildUnits(const UnitList& model,
                                            const optim::ParameterGrouper& group_of);

// Communicates the gradients of modules of these classes (PyTorch's names) in `dtype`:
// torch_autocast.lower_precision_safe_modules. The gradient of an embedding table is not affected,
// even if the head shares the table.
void ReduceModulesIn(at::ScalarType dtype, const std::vector<std::string>& classes,
                     const BlockList& model, std::vector<zero::ParameterUnit>* units);
void ReduceModulesIn(at::ScalarType dtype, const std::vector<std::string>& classes,
                     const UnitList& model, std::vector<zero::ParameterUnit>* units);

// Communicates the gradients of embedding tables by rows (sparse_gradients). Tables that another
// block also reads are excluded: a head's gradient has no zero rows.
void ReduceEmbeddingsByRows(const BlockList& model, std::vector<zero::ParameterUnit>* units);
void ReduceEmbeddingsByRows(const UnitList& model, std::vector<zero::ParameterUnit>* units);

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

// Assigns parameter groups to schedules of their own: one for each number in the lists in
// scheduler.params, or one for each half of Muon.
//
// Groups are the distinct ParameterGroups of the trained parameters, numbered by first occurrence
// in the model. Under Muon its matrices come first. DeepSpeed's engine and common scripts use the
// same order (parameters with decay, then those without).
//
// Gives each trained parameter the schedule of its group. The lists then determine the rate: the
// parameter's factor becomes 1, because lists replace a group's own rate in DeepSpeed. Returns the
// groups' own rates, at which a schedule may still begin or end. Returns an empty vector if all
// parameters share one rate.
//
// Without lists, Muon's matrices are the first group and AdamW's parameters the second. Both follow
// the same schedule: a number in it is the rate of both groups, as in DeepSpeed. Fails if the lists
// have another number of entries than the model has groups.
//
// `given` are EngineOptions::group_rates: these groups then stay, in their order, and each is two
// under Muon.
StatusOr<std::vector<double>> FollowGroupSchedules(const config::DsConfig& config,
                                                   const std::vector<std::optional<double>>& given,
                                                   std::vector<zero::ParameterUnit>* units);

// Returns the source of each unit's initial values. The sources are, in this order:
// EngineOptions::read_values; the values of the user's own modules on rank 0, or those that the
// block's factory makes; Block::Initialize. Call it before ZeRO moves the parameters, while it can
// be seen which parameters have values. The arguments must outlive the result. Fails if only some
// parameters of a block have values.
StatusOr<zero::FillUnit> MakeFillUnit(const BlockList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options);

// The same for a UnitList, whose parameters have values on every rank, unless
// EngineOptions::read_values or UnitList::write_first_values is set.
StatusOr<zero::FillUnit> MakeFillUnit(const UnitList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options);

}  // namespace ds::engine
