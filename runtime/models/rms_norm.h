#pragma once

// RMSNorm (Zhang and Sennrich, 2019) over the last dimension, in transformers' order: x / sqrt(mean
// of x^2 + epsilon) in fp32, rounded to x's dtype, times the weight.

#include <ATen/core/Tensor.h>

namespace ds::models {

// x [..., width], weight [width]. Differentiable; where both have one dtype, on the CPU, it keeps x
// and one number a row. The weight's gradient does not depend on the number of threads.
at::Tensor NormaliseByRms(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace ds::models
