#pragma once

// BuildUnits turns a model into what ZeRO sees of it. Two more functions mark the parameters whose
// gradients go between ranks in a way of their own, by the modules that have registered them.

#include <string>
#include <vector>

#include "runtime/config/recompute_choice.h"
#include "runtime/models/block.h"
#include "runtime/optim/groups/parameter_groups.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::engine {

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

}  // namespace ds::engine
