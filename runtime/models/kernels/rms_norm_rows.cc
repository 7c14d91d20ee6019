#include "runtime/models/kernels/rows.h"

#include <cmath>

#include "runtime/models/kernels/vector_lanes.h"

namespace ds::models {
namespace {

template <typename Scalar>
DS_ALWAYS_INLINE float Normalise(const NormedRow<Scalar>& row, double epsilon, Scalar* y) {
  Floats squares = {};
  for (std::int64_t i = 0; i < row.width; i += kLanes) {
    const Floats x = LoadPartial(row.x + i, row.width - i);
    squares += x * x;
  }
  const double mean = AddLanes(squares) / static_cast<double>(row.width);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + epsilon));
  for (std::int64_t i = 0; i < row.width; i += kLanes) {
    const std::int64_t left = row.width - i;
    const Floats normal = RoundLanes<Scalar>(LoadPartial(row.x + i, left) * scale);
    StorePartial(y + i, normal * LoadPartial(row.weight + i, left), left);
  }
  return scale;
}

// With n = x s and h = upstream w, the gradient of x is s (h - n mean(h n)).
template <typename Scalar>
DS_ALWAYS_INLINE void FindGradients(const NormedRow<Scalar>& row, float scale,
                                    const Scalar* upstream,
                                    const NormGradients<Scalar>& gradients) {
  Floats products = {};
  for (std::int64_t i = 0; i < row.width; i += kLanes) {
    const std::int64_t left = row.width - i;
    const Floats arrived = LoadPartial(upstream + i, left);
    const Floats normal = LoadPartial(row.x + i, left) * scale;
    products += arrived * LoadPartial(row.weight + i, left) * normal;
    if (gradients.weight == nullptr) continue;
    const Floats sum =
        LoadPartial(gradients.weight + i, left) + arrived * RoundLanes<Scalar>(normal);
    StorePartial(gradients.weight + i, sum, left);
  }
  const auto mean = static_cast<float>(AddLanes(products) / static_cast<double>(row.width));
  for (std::int64_t i = 0; i < row.width; i += kLanes) {
    const std::int64_t left = row.width - i;
    const Floats normal = LoadPartial(row.x + i, left) * scale;
    const Floats weighted = LoadPartial(upstream + i, left) * LoadPartial(row.weight + i, left);
    StorePartial(gradients.x + i, scale * (weighted - normal * mean), left);
  }
}

}  // namespace

DS_FOR_EACH_ISA float RmsNormRow(const NormedRow<float>& row, double epsilon, float* y) {
  return Normalise(row, epsilon, y);
}
DS_FOR_EACH_ISA float RmsNormRow(const NormedRow<BFloat16>& row, double epsilon, BFloat16* y) {
  return Normalise(row, epsilon, y);
}
DS_FOR_EACH_ISA float RmsNormRow(const NormedRow<Float16>& row, double epsilon, Float16* y) {
  return Normalise(row, epsilon, y);
}
DS_FOR_EACH_ISA void RmsNormRowBackward(const NormedRow<float>& row, float scale,
                                        const float* upstream,
                                        const NormGradients<float>& gradients) {
  FindGradients(row, scale, upstream, gradients);
}
DS_FOR_EACH_ISA void RmsNormRowBackward(const NormedRow<BFloat16>& row, float scale,
                                        const BFloat16* upstream,
                                        const NormGradients<BFloat16>& gradients) {
  FindGradients(row, scale, upstream, gradients);
}
DS_FOR_EACH_ISA void RmsNormRowBackward(const NormedRow<Float16>& row, float scale,
                                        const Float16* upstream,
                                        const NormGradients<Float16>& gradients) {
  FindGradients(row, scale, upstream, gradients);
}

}  // namespace ds::models
