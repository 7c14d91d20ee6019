#include "runtime/models/gelu_rows.h"

#include <algorithm>

#include "runtime/models/vector_lanes.h"

namespace ds::models {
namespace {

// 2u = x (kSlope + kCubic x^2).
constexpr float kSlope = 1.5957691216057308F;   // 2 sqrt(2/pi)
constexpr float kCubic = 0.07135481627159536F;  // times 0.044715
constexpr float kFar = 100.0F;                  // here the function is x, or nothing

// The logistic function of 2u, and its complement, each to its own last place.
struct Logistic {
  Floats of, complement;
};

DS_ALWAYS_INLINE Logistic FindLogistic(Floats x) {
  const Floats twice = x * (kSlope + kCubic * (x * x));
  const Floats small = ExpOfNonPositive(twice > 0.0F ? -twice : twice);
  const Floats large = 1.0F / (1.0F + small);
  const Floats rest = small * large;
  return {twice > 0.0F ? large : rest, twice > 0.0F ? rest : large};
}

struct Forward {
  static DS_ALWAYS_INLINE Floats Compute(Floats x, Floats /*upstream*/) {
    return x * FindLogistic(x).of;
  }
};

struct Backward {
  static DS_ALWAYS_INLINE Floats Compute(Floats x, Floats upstream) {
    const Logistic logistic = FindLogistic(x);
    // Far out the complement is 0, and the slope must not be infinite beside it.
    const Floats far = Floats{} + kFar;
    const Floats near = x > far ? far : (x < -far ? -far : x);
    const Floats slope = near * (kSlope + 3.0F * kCubic * (near * near));
    return upstream * logistic.of * (1.0F + slope * logistic.complement);
  }
};

DS_ALWAYS_INLINE Floats LoadLanes(const float* from) { return Load(from); }
DS_ALWAYS_INLINE Floats LoadLanes(const BFloat16* from) {
  float lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = Widen(from[i]);
  return Load(lanes);
}
DS_ALWAYS_INLINE void StoreLanes(float* to, Floats lanes) { Store(to, lanes); }
DS_ALWAYS_INLINE void StoreLanes(BFloat16* to, Floats values) {
  float lanes[kLanes];
  Store(lanes, values);
  for (std::int64_t i = 0; i < kLanes; ++i) to[i] = RoundTo<BFloat16>(lanes[i]);
}

template <typename Pass, typename Scalar>
DS_ALWAYS_INLINE void Run(const Scalar* x, const Scalar* upstream, std::int64_t count,
                          Scalar* out) {
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    StoreLanes(out + i, Pass::Compute(LoadLanes(x + i), LoadLanes(upstream + i)));
  }
  if (whole == count) return;
  Scalar last_x[kLanes] = {}, last_upstream[kLanes] = {}, last[kLanes];
  std::copy_n(x + whole, count - whole, last_x);
  std::copy_n(upstream + whole, count - whole, last_upstream);
  StoreLanes(last, Pass::Compute(LoadLanes(last_x), LoadLanes(last_upstream)));
  std::copy_n(last, count - whole, out + whole);
}

}  // namespace

DS_FOR_EACH_ISA void GeluTanh(const float* x, std::int64_t count, float* y) {
  Run<Forward>(x, x, count, y);
}
DS_FOR_EACH_ISA void GeluTanh(const BFloat16* x, std::int64_t count, BFloat16* y) {
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

}  // namespace ds::models
