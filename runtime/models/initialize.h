#pragma once

// Random first values that depend on (seed, parameter name) alone: not on the order in which
// parameters are filled, the rank, the device or the number of threads.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace ds::models {

struct NormalFill {
  std::uint64_t seed = 0;
  std::string name;  // the parameter's full name
  double std = 0.02;
};

// Fills `tensor` with normal(0, std) values from a stream of its own. Drawn in fp32 on the CPU and
// then rounded to the tensor's dtype, so that bf16 and fp32 runs start from the same weights.
void FillNormal(at::Tensor& tensor, const NormalFill& fill);

}  // namespace ds::models
