#pragma once

// ParameterUnit: the parameters that are gathered, released and reduced together; what ZeRO knows
// of a model's block.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/placement.h"
#include "runtime/optim/kernels/part.h"

namespace ds::zero {

struct NamedParameter {
  std::string name;  // unique in the model
  at::Tensor tensor;
  checkpoint::Placement placement;  // of the tensor, whole
  optim::ParameterGroup group = {};
  std::optional<at::ScalarType> reduction = {};  // of its gradient between ranks, if its own
  bool sparse_rows = false;                      // a table of whose gradient most rows are 0
  // Weights and gradients may travel rounded, and frozen weights be kept so, where the context says
  // so: a matrix, whose elements are of one size, but no bias or norm.
  bool rounded = false;
};

struct ParameterUnit {
  std::string name;
  std::vector<NamedParameter> parameters;
  // Earlier units whose parameters this one reads too (tied weights).
  std::vector<int> also_reads;
  // False: its backward pass reads the bytes of no parameter, neither its own nor of those units.
  bool backward_reads = true;
};

}  // namespace ds::zero
