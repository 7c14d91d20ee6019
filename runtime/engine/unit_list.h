#pragma once

// UnitList describes a model that its caller runs, such as a Python module, or the part of it
// that a pipeline stage has: an engine that is created from one shards and trains its parameters,
// and UnitPasses tells it of the passes.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/engine/module_buffers.h"

namespace ds::engine {

struct UnitParameter {
  std::string name;  // unique in the model
  at::Tensor tensor;
  // The class of the module that has it, as PyTorch writes it ("torch.nn.Linear"); may be empty.
  // torch_autocast.lower_precision_safe_modules and sparse_gradients choose by it.
  std::string module_class;
  // Pipeline stages that hold the parameter, if several do: Placement::stages. Their values are
  // equal at the start.
  std::vector<int> stages = {};
  // True for an expert's, where the ranks have different experts (Placement::expert). Its name has
  // the expert's index in the layer; the ranks list corresponding experts in the same order.
  bool expert = false;
};

// Parameters that are gathered, released and reduced together, usually those of a layer.
struct UnitDescription {
  std::string name;
  std::vector<UnitParameter> parameters;
  // Indices of earlier units with parameters that this unit reads, too (tied weights).
  std::vector<int> also_reads;
};

// Writes the first values of a unit's parameters, which have memory during the call, as views of
// the engine's own. Returns whether they are the same on every rank; otherwise rank 0's are kept.
// Called for each unit in order, on all ranks: it may be collective.
using WriteFirstValues = std::function<bool(int unit)>;

struct UnitList {
  std::vector<UnitDescription> units;  // a parameter belongs to one unit
  std::vector<ModuleBuffers::Named> buffers;
  WriteFirstValues write_first_values;  // if empty, the parameters have values
};

}  // namespace ds::engine
