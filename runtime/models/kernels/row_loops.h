#pragma once

// Adapters that run the tensor-free loops of *_rows.h over tensors: supported dtypes, access to the
// elements, and splitting over all threads. Other dtypes and devices use LibTorch operators.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "runtime/base/half_float.h"
#include "runtime/device/parallel.h"

namespace ds::models {

inline bool HasRowLoops(const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  return x.is_cpu() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

// Calls loop(Scalar{}) with the element type of x. Requires HasRowLoops(x).
template <typename Loop>
void WithElementType(const at::Tensor& x, const Loop& loop) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return loop(float{});
    case at::kBFloat16:
      return loop(BFloat16{});
    default:
      return loop(Float16{});
  }
}

template <typename Scalar>
const Scalar* Elements(const at::Tensor& x) {
  return static_cast<const Scalar*>(x.const_data_ptr());
}
template <typename Scalar>
Scalar* MutableElements(const at::Tensor& x) {
  return static_cast<Scalar*>(x.mutable_data_ptr());
}

// Splits `parts` items of `elements` elements each over all threads; calls loop(first, count) for
// each thread's items.
template <typename Loop>
void ForEachPart(std::int64_t parts, std::int64_t elements, const Loop& loop) {
  constexpr std::int64_t kLeast = 16384;  // elements for which another thread is worth its start
  const std::int64_t least =
      std::max<std::int64_t>(1, kLeast / std::max<std::int64_t>(1, elements));
  device::ParallelFor(0, parts, least,
                      [&](std::int64_t begin, std::int64_t end) { loop(begin, end - begin); });
}

}  // namespace ds::models
