#include "runtime/models/kernels/rows.h"

#include "runtime/models/kernels/vector_lanes.h"

namespace ds::models {
namespace {

template <typename Scalar>
DS_ALWAYS_INLINE void GateRow(GatePair<const Scalar> x, std::int64_t count, Scalar* y) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    const Floats gate = LoadPartial(x.gate + i, left);
    StorePartial(y + i, gate * FindLogistic(gate).of * LoadPartial(x.up + i, left), left);
  }
}

template <typename Scalar>
DS_ALWAYS_INLINE void GateRowBackward(GatePair<const Scalar> x, const Scalar* upstream,
                                      std::int64_t count, GatePair<Scalar> gradient) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    const Floats gate = LoadPartial(x.gate + i, left), up = LoadPartial(x.up + i, left);
    const Floats arrived = LoadPartial(upstream + i, left);
    const Logistic logistic = FindLogistic(gate);
    const Floats slope = logistic.of * (1.0F + gate * logistic.complement);
    StorePartial(gradient.gate + i, arrived * up * slope, left);
    StorePartial(gradient.up + i, arrived * (gate * logistic.of), left);
  }
}

}  // namespace

DS_FOR_EACH_ISA void SwiGlu(GatePair<const float> x, std::int64_t count, float* y) {
  GateRow(x, count, y);
}
DS_FOR_EACH_ISA void SwiGlu(GatePair<const BFloat16> x, std::int64_t count, BFloat16* y) {
  GateRow(x, count, y);
}
DS_FOR_EACH_ISA void SwiGlu(GatePair<const Float16> x, std::int64_t count, Float16* y) {
  GateRow(x, count, y);
}
DS_FOR_EACH_ISA void SwiGluBackward(GatePair<const float> x, const float* upstream,
                                    std::int64_t count, GatePair<float> gradient) {
  GateRowBackward(x, upstream, count, gradient);
}
DS_FOR_EACH_ISA void SwiGluBackward(GatePair<const BFloat16> x, const BFloat16* upstream,
                                    std::int64_t count, GatePair<BFloat16> gradient) {
  GateRowBackward(x, upstream, count, gradient);
}
DS_FOR_EACH_ISA void SwiGluBackward(GatePair<const Float16> x, const Float16* upstream,
                                    std::int64_t count, GatePair<Float16> gradient) {
  GateRowBackward(x, upstream, count, gradient);
}

}  // namespace ds::models
