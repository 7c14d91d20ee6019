#pragma once

// ParameterUnit: parameters that are gathered, released and reduced together. It is ZeRO's view of
// a model's block.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/placement.h"
#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::zero {

struct NamedParameter {
  std::string name;  // unique in the model
  at::Tensor tensor;
  checkpoint::Placement placement;  // of the unsharded tensor
  optim::ParameterGroup group = {};
  // The dtype of its gradient reduction, if it differs from the default.
  std::optional<at::ScalarType> reduction = {};
  bool sparse_rows = false;  // a table; its gradient has mostly zero rows
  // If the context enables it, weights and gradients are sent quantized, and frozen weights are
  // kept quantized. Set for matrices, because their elements have similar magnitudes; not for
  // biases or norms.
  bool rounded = false;
};

struct ParameterUnit {
  std::string name;
  std::vector<NamedParameter> parameters;
  // Earlier units with parameters that this unit reads, too (tied weights).
  std::vector<int> also_reads;
  // False if the backward pass reads the values of no parameter, neither its own nor of those
  // units.
  bool backward_reads = true;
};

}  // namespace ds::zero
