#pragma once

// UpdateStrided is one thread's share of an op over flat views. CUDA launches run it. Tests call it
// on the host, for every thread of a grid in sequence.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

template <typename T>
struct alignas(kFlatWidth * sizeof(T)) Four {
  T at[kFlatWidth];
};

// The unit of memory loads and stores.
#ifdef __CUDACC__
template <typename T>
using Register = std::conditional_t<sizeof(T) == sizeof(float), uint4, uint2>;
#else
template <typename T>
using Register = Four<T>;
#endif

template <typename T, int kWidth>
DS_HOST_DEVICE void LoadAs(const void* data, std::int64_t i, float* values) {
  const T* from = static_cast<const T*>(data) + i;
  if constexpr (kWidth == kFlatWidth) {
    const auto four = __builtin_bit_cast(Four<T>, *reinterpret_cast<const Register<T>*>(from));
    for (int k = 0; k < kWidth; ++k) values[k] = static_cast<float>(four.at[k]);
  } else {
    values[0] = static_cast<float>(*from);
  }
}

template <typename T, int kWidth>
DS_HOST_DEVICE void StoreAs(const float* values, void* data, std::int64_t i) {
  T* to = static_cast<T*>(data) + i;
  if constexpr (kWidth == kFlatWidth) {
    Four<T> four;
    for (int k = 0; k < kWidth; ++k) four.at[k] = static_cast<T>(values[k]);
    auto* const at = reinterpret_cast<Register<T>*>(to);
#ifdef __CUDA_ARCH__
    __stwb(at, __builtin_bit_cast(Register<T>, four));  // the compiler splits a plain store
#else
    *at = __builtin_bit_cast(Register<T>, four);
#endif
  } else {
    *to = static_cast<T>(values[0]);
  }
}

// Branches on the type instead of having one kernel for each combination of types. The type is the
// same for all threads, so the branch is cheap compared to the memory access.
template <int kWidth>
DS_HOST_DEVICE void Load(const FlatView& view, std::int64_t i, float* values) {
  if (view.type == FlatType::kFloat) return LoadAs<float, kWidth>(view.data, i, values);
  if (view.type == FlatType::kBFloat16) return LoadAs<c10::BFloat16, kWidth>(view.data, i, values);
  LoadAs<c10::Half, kWidth>(view.data, i, values);
}

template <int kWidth>
DS_HOST_DEVICE void Store(const float* values, const FlatView& view, std::int64_t i) {
  if (view.type == FlatType::kFloat) return StoreAs<float, kWidth>(values, view.data, i);
  if (view.type == FlatType::kBFloat16) return StoreAs<c10::BFloat16, kWidth>(values, view.data, i);
  StoreAs<c10::Half, kWidth>(values, view.data, i);
}

DS_HOST_DEVICE float Rounded(float value, FlatType type) {
  if (type == FlatType::kFloat) return value;
  return type == FlatType::kBFloat16 ? static_cast<float>(static_cast<c10::BFloat16>(value))
                                     : static_cast<float>(static_cast<c10::Half>(value));
}

// Updates elements [i, i + kWidth).
template <int kWidth, typename Op>
DS_HOST_DEVICE void UpdateAt(const Op& op, const FlatViews& views, float narrow_scale,
                             std::int64_t i) {
  constexpr Streams kStreams = Op::kStreams;
  float parameter[kWidth], gradient[kWidth], first[kWidth], second[kWidth];
  if constexpr (kStreams.reads_parameter) Load<kWidth>(views.parameter, i, parameter);
  if constexpr (kStreams.reads_gradient) Load<kWidth>(views.gradient, i, gradient);
  if constexpr (kStreams.states > 0) Load<kWidth>(views.state[0], i, first);
  if constexpr (kStreams.states > 1) Load<kWidth>(views.state[1], i, second);
  const FlatType type = views.parameter.type;
  for (int k = 0; k < kWidth; ++k) {
    Element e;
    if constexpr (kStreams.reads_parameter) e.parameter = parameter[k];
    if constexpr (kStreams.reads_gradient) {
      e.gradient = type == FlatType::kFloat
                       ? gradient[k]
                       : Rounded(Rounded(gradient[k], type) * narrow_scale, type);
    }
    if constexpr (kStreams.states > 0) e.state[0] = first[k];
    if constexpr (kStreams.states > 1) e.state[1] = second[k];
    op(e);
    if constexpr (kStreams.writes_parameter) parameter[k] = e.parameter;
    if constexpr (kStreams.states > 0) first[k] = e.state[0];
    if constexpr (kStreams.states > 1) second[k] = e.state[1];
  }
  if constexpr (kStreams.writes_states) {
    if constexpr (kStreams.states > 0) Store<kWidth>(first, views.state[0], i);
    if constexpr (kStreams.states > 1) Store<kWidth>(second, views.state[1], i);
  }
  if constexpr (kStreams.writes_parameter) {
    Store<kWidth>(parameter, views.parameter, i);
    if (views.published.data != nullptr) Store<kWidth>(parameter, views.published, i);
  }
}

// Does the work of thread `thread` of `threads`.
template <typename Op>
DS_HOST_DEVICE void UpdateStrided(const Op& op, const FlatViews& views, const FlatPlan& plan,
                                  std::int64_t thread, std::int64_t threads) {
  Op decided = op;
  float narrow_scale = views.narrow_scale;
  if (!TakeDecision(views, &decided, &narrow_scale)) return;
  for (std::int64_t four = thread; four < plan.fours; four += threads) {
    UpdateAt<kFlatWidth>(decided, views, narrow_scale, plan.head + four * kFlatWidth);
  }
  const std::int64_t skipped = plan.fours * kFlatWidth;
  for (std::int64_t single = thread; single < views.count - skipped; single += threads) {
    UpdateAt<1>(decided, views, narrow_scale, single < plan.head ? single : single + skipped);
  }
}

}  // namespace ds::optim
