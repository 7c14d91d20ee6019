#pragma once

// Rotary position embedding in transformers' layout: the two halves of a head are the coordinates
// that are turned.

#include <ATen/core/Tensor.h>

namespace ds::models {

// x [B, heads, S, head width], whatever its strides, with position s turned by the angles whose cos
// and sin are row s of [S, half], or of the sample's in [B, S, half]. Where 2 half is less than the
// head's width, what is behind stays as it is. Differentiable in x; keeps cos and sin only.
at::Tensor ApplyRotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace ds::models
