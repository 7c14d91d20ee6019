#pragma once

// GELU by its tanh formula (Hendrycks and Gimpel, 2016), with one exponential an element:
// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3). Vectorised for the
// widest instructions of the machine. Computes in fp32, and an element's result does not depend on
// its neighbours. Off the exact formula by at most two units in the last place of x.

#include <cstdint>

#include "runtime/base/half_float.h"

namespace ds::models {

void GeluTanh(const float* x, std::int64_t count, float* y);
void GeluTanh(const BFloat16* x, std::int64_t count, BFloat16* y);

// gradient[i] = upstream[i] times the derivative at x[i]; `gradient` may be `upstream`.
void GeluTanhBackward(const float* x, const float* upstream, std::int64_t count, float* gradient);
void GeluTanhBackward(const BFloat16* x, const BFloat16* upstream, std::int64_t count,
                      BFloat16* gradient);

}  // namespace ds::models
