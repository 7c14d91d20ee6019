#include "runtime/models/kernels/rows.h"

#include "runtime/models/kernels/vector_lanes.h"

namespace ds::models {
namespace {

// 2u = x (kSlope + kCubic x^2).
constexpr float kSlope = 1.5957691216057308F;   // 2 sqrt(2/pi)
constexpr float kCubic = 0.07135481627159536F;  // times 0.044715
constexpr float kFar = 100.0F;                  // beyond it, in fp32, the function is x or 0

DS_ALWAYS_INLINE Floats TwiceU(Floats x) { return x * (kSlope + kCubic * (x * x)); }

struct Forward {
  static DS_ALWAYS_INLINE Floats Compute(Floats x, Floats /*upstream*/) {
    return x * FindLogistic(TwiceU(x)).of;
  }
};

struct Backward {
  static DS_ALWAYS_INLINE Floats Compute(Floats x, Floats upstream) {
    const Logistic logistic = FindLogistic(TwiceU(x));
    // Far out the complement is 0, and it must not be multiplied by an infinite slope.
    const Floats far = Floats{} + kFar;
    const Floats near = x > far ? far : (x < -far ? -far : x);
    const Floats slope = near * (kSlope + 3.0F * kCubic * (near * near));
    return upstream * logistic.of * (1.0F + slope * logistic.complement);
  }
};

template <typename Pass, typename Scalar>
DS_ALWAYS_INLINE void Run(const Scalar* x, const Scalar* upstream, std::int64_t count,
                          Scalar* out) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    const Floats arrived = LoadPartial(upstream + i, left);
    StorePartial(out + i, Pass::Compute(LoadPartial(x + i, left), arrived), left);
  }
}

}  // namespace

DS_FOR_EACH_ISA void GeluTanh(const float* x, std::int64_t count, float* y) {
  Run<Forward>(x, x, count, y);
}
DS_FOR_EACH_ISA void GeluTanh(const BFloat16* x, std::int64_t count, BFloat16* y) {
  Run<Forward>(x, x, count, y);
}
DS_FOR_EACH_ISA void GeluTanh(const Float16* x, std::int64_t count, Float16* y) {
  Run<Forward>(x, x, count, y);
}
DS_FOR_EACH_ISA void GeluTanhBackward(const float* x, const float* upstream, std::int64_t count,
                                      float* gradient) {
  Run<Backward>(x, upstream, count, gradient);
}
DS_FOR_EACH_ISA void GeluTanhBackward(const BFloat16* x, const BFloat16* upstream,
                                      std::int64_t count, BFloat16* gradient) {
  Run<Backward>(x, upstream, count, gradient);
}
DS_FOR_EACH_ISA void GeluTanhBackward(const Float16* x, const Float16* upstream, std::int64_t count,
                                      Float16* gradient) {
  Run<Backward>(x, upstream, count, gradient);
}

}  // namespace ds::models
