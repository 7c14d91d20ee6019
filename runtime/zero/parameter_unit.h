#pragma once

// ParameterUnit: the parameters that are gathered, released and reduced together; what ZeRO knows
// of a model's block.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/optim/part.h"

namespace ds::zero {

struct NamedParameter {
  std::string name;  // unique in the model
  at::Tensor tensor;
  optim::ParameterGroup group = {};
};

struct ParameterUnit {
  std::string name;
  std::vector<NamedParameter> parameters;
  // Earlier units whose parameters this one reads too (tied weights).
  std::vector<int> also_reads;
};

}  // namespace ds::zero
