#pragma once

// Between 16-bit values and fp32 on the CPU, in vectors; the values of LibTorch's own conversions,
// which go one by one. The ranges do not overlap.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace ds::optim {

void Widen(const c10::BFloat16* narrow, std::int64_t count, float* wide);
void Widen(const c10::Half* narrow, std::int64_t count, float* wide);

// To nearest, ties to even.
void Round(const float* wide, std::int64_t count, c10::BFloat16* narrow);
void Round(const float* wide, std::int64_t count, c10::Half* narrow);

}  // namespace ds::optim
