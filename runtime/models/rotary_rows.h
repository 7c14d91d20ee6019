#pragma once

// Rotary position embedding (Su et al., 2021) of rows in transformers' layout: element i of a row's
// first half and element i of its second half are the two coordinates of a point, which is turned
// by an angle of its own. Elements behind both halves are copied. One pass; vectorised for the
// widest instructions of the machine; computes in fp32.

#include <cstdint>

#include "runtime/base/half_float.h"

namespace ds::models {

// Rows that are turned by the same angles: the heads of one token. Strides in elements.
template <typename Scalar>
struct TurnedRows {
  const Scalar* from = nullptr;
  Scalar* to = nullptr;
  std::int64_t from_stride = 0, to_stride = 0;
  std::int64_t rows = 0, width = 0;
};

// cos and sin of `half` angles; 2 half <= width. A negative `direction` turns the other way, which
// is what gradients go through.
template <typename Scalar>
struct TurningAngles {
  const Scalar* cos = nullptr;
  const Scalar* sin = nullptr;
  std::int64_t half = 0;
  float direction = 1.0F;
};

void TurnRows(const TurnedRows<float>& rows, const TurningAngles<float>& angles);
void TurnRows(const TurnedRows<BFloat16>& rows, const TurningAngles<BFloat16>& angles);

}  // namespace ds::models
