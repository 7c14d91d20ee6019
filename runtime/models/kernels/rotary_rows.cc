#include "runtime/models/kernels/rows.h"

#include <algorithm>

#include "runtime/models/kernels/vector_lanes.h"

namespace ds::models {
namespace {

template <typename Scalar>
DS_ALWAYS_INLINE void Rotate(const RotatedRows<Scalar>& rows, const TurningAngles<Scalar>& angles) {
  const std::int64_t half = angles.half;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    const Scalar* from = rows.from + row * rows.from_stride;
    Scalar* to = rows.to + row * rows.to_stride;
    for (std::int64_t i = 0; i < half; i += kLanes) {
      const std::int64_t left = half - i;
      const Floats cos = LoadPartial(angles.cos + i, left);
      const Floats sin = LoadPartial(angles.sin + i, left) * angles.direction;
      const Floats first = LoadPartial(from + i, left), second = LoadPartial(from + half + i, left);
      StorePartial(to + i, first * cos - second * sin, left);
      StorePartial(to + half + i, second * cos + first * sin, left);
    }
    std::copy(from + 2 * half, from + rows.width, to + 2 * half);
  }
}

}  // namespace

DS_FOR_EACH_ISA void RotateRows(const RotatedRows<float>& rows,
                                const TurningAngles<float>& angles) {
  Rotate(rows, angles);
}
DS_FOR_EACH_ISA void RotateRows(const RotatedRows<BFloat16>& rows,
                                const TurningAngles<BFloat16>& angles) {
  Rotate(rows, angles);
}
DS_FOR_EACH_ISA void RotateRows(const RotatedRows<Float16>& rows,
                                const TurningAngles<Float16>& angles) {
  Rotate(rows, angles);
}

}  // namespace ds::models
