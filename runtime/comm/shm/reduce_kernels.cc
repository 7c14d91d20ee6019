#include "runtime/comm/shm/reduce_kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/base/half_float.h"

// One body is compiled for several instruction sets: everything below is inlined into the function
// that has the target attribute.
#define DS_INLINE __attribute__((always_inline)) inline

namespace ds::comm {
namespace {

// Number of elements of an accumulator in the first-level cache.
constexpr std::size_t kBlock = 1024;

template <typename T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};
template <>
struct Accumulator<Float16> {
  using type = float;
};

template <typename T>
DS_INLINE T Widen(T value) {
  return value;
}

template <typename T>
DS_INLINE T Narrow(typename Accumulator<T>::type value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return RoundTo<T>(value);
  } else {
    return value;
  }
}

struct Add {
  template <typename T>
  static DS_INLINE T Apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<T>) {
      // Integers wrap around, like LibTorch's integer sums, without signed overflow.
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Multiply {
  template <typename T>
  static DS_INLINE T Apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
// A NaN of any rank is kept, as in LibTorch.
struct Max {
  template <typename T>
  static DS_INLINE T Apply(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
};
struct Min {
  template <typename T>
  static DS_INLINE T Apply(T a, T b) {
    return (a < b || a != a) ? a : b;
  }
};

struct Job {
  std::byte* output;
  std::span<const std::byte* const> sources;
  std::size_t count;
  const std::byte* before;  // accumulated so far; null: nothing
  bool is_last;             // false: the output is the accumulator
  int divisor;              // 0: none
};

template <typename T, typename Op>
DS_INLINE void Run(const Job& job) {
  using A = typename Accumulator<T>::type;
  alignas(64) A sums[kBlock];
  for (std::size_t start = 0; start < job.count; start += kBlock) {
    const std::size_t n = std::min(kBlock, job.count - start);
    if (job.before != nullptr) {
      const A* before = reinterpret_cast<const A*>(job.before) + start;
      for (std::size_t i = 0; i < n; ++i) sums[i] = before[i];
    } else {
      const T* first = reinterpret_cast<const T*>(job.sources[0]) + start;
      for (std::size_t i = 0; i < n; ++i) sums[i] = Widen(first[i]);
    }
    for (const std::byte* source : job.sources.subspan(job.before == nullptr ? 1 : 0)) {
      const T* values = reinterpret_cast<const T*>(source) + start;
      for (std::size_t i = 0; i < n; ++i)
        sums[i] = Op::Apply(sums[i], static_cast<A>(Widen(values[i])));
    }
    if constexpr (std::is_floating_point_v<A>) {
      const A ranks = static_cast<A>(job.divisor);
      if (job.divisor != 0) {
        for (std::size_t i = 0; i < n; ++i) sums[i] /= ranks;
      }
    }
    if (!job.is_last) {
      A* output = reinterpret_cast<A*>(job.output) + start;
      for (std::size_t i = 0; i < n; ++i) output[i] = sums[i];
      continue;
    }
    T* output = reinterpret_cast<T*>(job.output) + start;
    for (std::size_t i = 0; i < n; ++i) output[i] = Narrow<T>(sums[i]);
  }
}

using Kernel = void (*)(const Job&);

template <typename T, typename Op>
void Baseline(const Job& job) {
  Run<T, Op>(job);
}

#if defined(__x86_64__)
template <typename T, typename Op>
__attribute__((target("avx2"))) void Avx2(const Job& job) {
  Run<T, Op>(job);
}
template <typename T, typename Op>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) void Avx512(
    const Job& job) {
  Run<T, Op>(job);
}
#endif

template <typename T, typename Op>
Kernel BestKernel() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return &Avx512<T, Op>;
  }
  if (__builtin_cpu_supports("avx2")) return &Avx2<T, Op>;
#endif
  return &Baseline<T, Op>;
}

template <typename T>
Kernel KernelFor(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return BestKernel<T, Add>();
    case ReduceOp::kMax:
      return BestKernel<T, Max>();
    case ReduceOp::kMin:
      return BestKernel<T, Min>();
    case ReduceOp::kProduct:
      return BestKernel<T, Multiply>();
  }
  DS_CHECK_MSG(false, "unknown reduction");
}

Kernel KernelFor(ElementType type, ReduceOp op) {
  switch (type) {
    case ElementType::kFloat32:
      return KernelFor<float>(op);
    case ElementType::kFloat64:
      return KernelFor<double>(op);
    case ElementType::kBFloat16:
      return KernelFor<BFloat16>(op);
    case ElementType::kFloat16:
      return KernelFor<Float16>(op);
    case ElementType::kInt8:
      return KernelFor<std::int8_t>(op);
    case ElementType::kUInt8:
      return KernelFor<std::uint8_t>(op);
    case ElementType::kInt16:
      return KernelFor<std::int16_t>(op);
    case ElementType::kInt32:
      return KernelFor<std::int32_t>(op);
    case ElementType::kInt64:
      return KernelFor<std::int64_t>(op);
    case ElementType::kBool:
      return KernelFor<bool>(op);
  }
  DS_CHECK_MSG(false, "unknown element type");
}

}  // namespace

void ReduceInRankOrder(std::byte* output, std::span<const std::byte* const> sources,
                       std::size_t count, ElementType type, ReduceOp op) {
  ContinueReduction(output, sources, count, type, op, {.ranks = static_cast<int>(sources.size())});
}

ElementType AccumulatorType(ElementType type) {
  const bool is_half = type == ElementType::kBFloat16 || type == ElementType::kFloat16;
  return is_half ? ElementType::kFloat32 : type;
}

void ContinueReduction(std::byte* output, std::span<const std::byte* const> sources,
                       std::size_t count, ElementType type, ReduceOp op,
                       const PartialReduction& partial) {
  const bool average = op == ReduceOp::kAvg;
  DS_CHECK(!sources.empty() && (!average || IsFloatingPoint(type)));
  KernelFor(type, op)({.output = output,
                       .sources = sources,
                       .count = count,
                       .before = partial.before,
                       .is_last = partial.ranks > 0,
                       .divisor = average ? partial.ranks : 0});
}

}  // namespace ds::comm
