#pragma once

// QuantizeState and DequantizeState store an optimizer's state in 8 bits, as bitsandbytes' 8-bit
// optimizers do (Dettmers et al., 2022, https://arxiv.org/abs/2110.02861). Each block of
// config::kStateBlock values has its largest magnitude as scale. Each value has a byte: the index
// of the nearest number of a map, which is multiplied by the scale.
//
// The maps are bitsandbytes' dynamic ones. Their numbers span seven decades and are denser for
// larger magnitudes. The signed map is for first moments, the unsigned one for second moments. A
// value equal to the scale is restored exactly. In the largest decade the error is at most 0.0071
// of the scale (signed; half of it unsigned), in each smaller one a tenth of that. Values that are
// not finite are not preserved.
//
// Free of LibTorch. Thread-safe; the maps are constants.

#include <array>
#include <cstdint>

namespace ds::optim {

enum class StateMap { kSigned, kUnsigned };

// Returns the numbers that the bytes index, ascending.
const std::array<float, 256>& NumbersOf(StateMap map);

// Convert `count` values from the start of a block on, with one scale per block. The last block may
// be incomplete.
void QuantizeState(const float* values, std::int64_t count, StateMap map, std::uint8_t* bytes,
                   float* scales);
void DequantizeState(const std::uint8_t* bytes, const float* scales, std::int64_t count,
                     StateMap map, float* values);

}  // namespace ds::optim
