#include "runtime/optim/kernels/widen.h"

#include "runtime/optim/kernels/simd.h"

namespace ds::optim {
namespace {

template <typename From, typename To>
[[gnu::always_inline]] inline void Convert(const From* __restrict from, std::int64_t count,
                                           To* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}

}  // namespace

DS_SIMD_CLONES void Widen(const c10::BFloat16* narrow, std::int64_t count, float* wide) {
  Convert(narrow, count, wide);
}

DS_SIMD_CLONES void Widen(const c10::Half* narrow, std::int64_t count, float* wide) {
  Convert(narrow, count, wide);
}

DS_SIMD_CLONES void Round(const float* wide, std::int64_t count, c10::BFloat16* narrow) {
  Convert(wide, count, narrow);
}

DS_SIMD_CLONES void Round(const float* wide, std::int64_t count, c10::Half* narrow) {
  Convert(wide, count, narrow);
}

}  // namespace ds::optim
