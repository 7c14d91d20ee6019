#pragma once

// A ParameterGrouper selects parameters with their own learning rate or weight decay. In DeepSpeed
// a script passes them as a list of parameter groups.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::optim {

// Returns the group of a parameter of the model's block `block`. Called once per parameter, before
// it has values. Parameters of a block with equal groups are adjacent in its flat buffer: a group
// costs no collective, and one pass updates it.
using ParameterGrouper =
    std::function<ParameterGroup(int block, const std::string& name, const at::Tensor& parameter)>;

// Puts all parameters into one group.
ParameterGroup OneGroup(int block, const std::string& name, const at::Tensor& parameter);

// Turns weight decay off for parameters with fewer than two dimensions (norms and biases), except
// DoRA's magnitudes.
ParameterGroup NoDecayOnNormsAndBiases(int block, const std::string& name,
                                       const at::Tensor& parameter);

// Returns the groups of `inner`, with the rate multiplied by decay^(blocks - 1 - block).
ParameterGrouper WithLayerwiseRates(ParameterGrouper inner, int blocks, double decay);

}  // namespace ds::optim
