#pragma once

// An optimizer's state in 8 bits, as bitsandbytes' 8-bit optimizers keep it (Dettmers et al., 2022,
// https://arxiv.org/abs/2110.02861): per block of config::kStateBlock values the largest magnitude
// as scale, and per value the byte that stands for the nearest number of a map, times the scale.
// The maps are bitsandbytes' dynamic ones: numbers of seven decades, the larger the closer, as
// first moments are of both signs and second ones of none. What is as large as the scale comes back
// exactly; in the largest decade a value is off by at most 0.0071 of the scale (signed; half of
// that unsigned), in each smaller one by a tenth. What is not finite is not kept.
//
// Free of LibTorch. Threads: any; the maps are constants.

#include <array>
#include <cstdint>

namespace ds::optim {

enum class StateMap { kSigned, kUnsigned };

// The numbers that bytes stand for, ascending.
const std::array<float, 256>& NumbersOf(StateMap map);

// `count` values from a block's beginning on, and one scale for each block, the last of which may
// be cut off.
void QuantizeState(const float* values, std::int64_t count, StateMap map, std::uint8_t* bytes,
                   float* scales);
void DequantizeState(const std::uint8_t* bytes, const float* scales, std::int64_t count,
                     StateMap map, float* values);

}  // namespace ds::optim
