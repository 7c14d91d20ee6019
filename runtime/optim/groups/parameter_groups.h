#pragma once

// A ParameterGrouper chooses the parameters with a learning rate or a weight decay of their own,
// which a script gives DeepSpeed as a list of parameter groups.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "runtime/optim/kernels/part.h"

namespace ds::optim {

// Returns the group of a parameter of the model's block `block`. It is called once per parameter,
// before it has values. Parameters of a block with equal groups lie side by side in its flat
// buffer, so that a group costs no collective, and each is updated by one pass.
using ParameterGrouper =
    std::function<ParameterGroup(int block, const std::string& name, const at::Tensor& parameter)>;

// Puts all parameters into one group.
ParameterGroup OneGroup(int block, const std::string& name, const at::Tensor& parameter);

// Switches weight decay off for what has fewer than two dimensions, norms and biases, but for
// DoRA's magnitudes.
ParameterGroup NoDecayOnNormsAndBiases(int block, const std::string& name,
                                       const at::Tensor& parameter);

// Groups as `inner` says, at a rate that falls by `decay` with every block before the last of
// `blocks`.
ParameterGrouper WithLayerwiseRates(ParameterGrouper inner, int blocks, double decay);

}  // namespace ds::optim
