#pragma once

// Activation functions between the products of a feed-forward layer.

#include <ATen/core/Tensor.h>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

at::Tensor Activate(Activation activation, const at::Tensor& x);

// Returns activation(gate) * up, with the same shape and dtype. With silu on the CPU it is one pass
// that keeps only gate and up for backward.
at::Tensor GatedActivation(Activation activation, const at::Tensor& gate, const at::Tensor& up);

}  // namespace ds::models
