#include "runtime/models/kernels/rows.h"

#include <algorithm>

#include "runtime/models/kernels/vector_lanes.h"

namespace ds::models {
namespace {

template <typename Scalar>
DS_ALWAYS_INLINE void Turn(const TurnedRows<Scalar>& rows, const TurningAngles<Scalar>& angles) {
  const std::int64_t half = angles.half;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    const Scalar* from = rows.from + row * rows.from_stride;
    Scalar* to = rows.to + row * rows.to_stride;
    for (std::int64_t i = 0; i < half; i += kLanes) {
      const std::int64_t left = half - i;
      const Floats cos = LoadPart(angles.cos + i, left);
      const Floats sin = LoadPart(angles.sin + i, left) * angles.direction;
      const Floats first = LoadPart(from + i, left), second = LoadPart(from + half + i, left);
      StorePart(to + i, first * cos - second * sin, left);
      StorePart(to + half + i, second * cos + first * sin, left);
    }
    std::copy(from + 2 * half, from + rows.width, to + 2 * half);
  }
}

}  // namespace

DS_FOR_EACH_ISA void TurnRows(const TurnedRows<float>& rows, const TurningAngles<float>& angles) {
  Turn(rows, angles);
}
DS_FOR_EACH_ISA void TurnRows(const TurnedRows<BFloat16>& rows,
                              const TurningAngles<BFloat16>& angles) {
  Turn(rows, angles);
}
DS_FOR_EACH_ISA void TurnRows(const TurnedRows<Float16>& rows,
                              const TurningAngles<Float16>& angles) {
  Turn(rows, angles);
}

}  // namespace ds::models
