#pragma once

// The functions between a feed-forward part's products.

#include <ATen/core/Tensor.h>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

at::Tensor Activate(Activation activation, const at::Tensor& x);

// activation(gate) * up, of the same shape and dtype. With silu, on the CPU, it is one pass that
// keeps nothing but gate and up.
at::Tensor GatedActivation(Activation activation, const at::Tensor& gate, const at::Tensor& up);

}  // namespace ds::models
