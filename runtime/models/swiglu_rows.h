#pragma once

// SwiGLU (Shazeer, 2020): silu(gate) * up, silu(x) = x / (1 + e^-x), element by element in one
// pass. The backward pass computes silu again: nothing but gate and up is kept. Vectorised for the
// widest instructions of the machine. Computes in fp32, and an element's result does not depend on
// its neighbours.

#include <cstdint>

#include "runtime/base/half_float.h"

namespace ds::models {

// So many elements of both.
template <typename Scalar>
struct GatePair {
  Scalar* gate;
  Scalar* up;
};

void SwiGlu(GatePair<const float> x, std::int64_t count, float* y);
void SwiGlu(GatePair<const BFloat16> x, std::int64_t count, BFloat16* y);

void SwiGluBackward(GatePair<const float> x, const float* upstream, std::int64_t count,
                    GatePair<float> gradient);
void SwiGluBackward(GatePair<const BFloat16> x, const BFloat16* upstream, std::int64_t count,
                    GatePair<BFloat16> gradient);

}  // namespace ds::models
