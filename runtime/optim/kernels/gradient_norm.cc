#include "runtime/optim/kernels/gradient_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/device/parallel.h"
#include "runtime/optim/kernels/flat_block.h"
#include "runtime/optim/kernels/simd.h"

namespace ds::optim {
namespace {

// Number of elements per task. It is fixed, so that the order of addition, and with it the rounding
// of the sum, does not depend on the number of threads.
constexpr std::int64_t kChunk = 1 << 18;
// Number of independent running sums. They fill several vector registers of doubles, so that
// additions need not wait for each other.
constexpr std::int64_t kLanes = 32;

// Sums squares of a 16-bit type, converted to fp32 block by block.
template <typename Narrow>
double SumOfNarrowSquares(const void* data, std::int64_t start, std::int64_t count) {
  const Narrow* const values = static_cast<const Narrow*>(data) + start;
  std::array<float, 1024> block;
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(block.size())) {
    const std::int64_t n = std::min<std::int64_t>(block.size(), count - i);
    Widen(values + i, n, block.data());
    sum += SumOfSquares(block.data(), n);
  }
  return sum;
}

double SumOfSquaresOnCpu(const at::Tensor& flat, std::int64_t start, std::int64_t count) {
  switch (flat.scalar_type()) {
    case at::kBFloat16:
      return SumOfNarrowSquares<BFloat16>(flat.const_data_ptr(), start, count);
    case at::kHalf:
      return SumOfNarrowSquares<Float16>(flat.const_data_ptr(), start, count);
    default:
      return SumOfSquares(flat.const_data_ptr<float>() + start, count);
  }
}

}  // namespace

DS_SIMD_CLONES double SumOfSquares(const float* values, std::int64_t count) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  double sum = std::accumulate(lanes.begin(), lanes.end(), 0.0);
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

double SumOfSquares(const at::Tensor& flat) {
  if (!flat.is_cpu()) {
    const double norm = at::linalg_vector_norm(flat, 2, {}, false, at::kDouble).item<double>();
    return norm * norm;
  }
  const std::int64_t count = flat.numel();
  std::vector<double> partial(static_cast<std::size_t>((count + kChunk - 1) / kChunk));
  device::ParallelFor(0, static_cast<std::int64_t>(partial.size()), 1,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t c = begin; c < end; ++c) {
                          const std::int64_t start = c * kChunk;
                          const std::int64_t n = std::min(kChunk, count - start);
                          partial[static_cast<std::size_t>(c)] = SumOfSquaresOnCpu(flat, start, n);
                        }
                      });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

void SquareSum::Add(at::Tensor values, double weight) {
  if (values.numel() > 0) slices_[weight].push_back(std::move(values));
}

void SquareSum::Measure() {
  for (const auto& [weight, slices] : std::exchange(slices_, {})) {
    const at::Tensor squares = at::stack(at::_foreach_norm(slices, 2, at::kDouble)).square_();
    const at::Tensor sum = squares.sum().mul_(weight);
    sum_ = sum_.defined() ? sum_.add_(sum) : sum;
  }
}

at::Tensor SquareSum::Sum() {
  Measure();
  return std::exchange(sum_, {});
}

double ClipFactor(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

at::Tensor DecideUpdate(const at::Tensor& squares, double unit, double max_norm) {
  const at::Tensor one = at::ones_like(squares);
  at::Tensor clip = one;
  if (max_norm > 0.0) {
    const at::Tensor norm = squares.sqrt().div_(unit);
    clip = at::full_like(squares, max_norm).div_(norm.add_(1e-6)).minimum(one);
  }
  return at::stack({clip / unit, at::isfinite(squares).to(at::kDouble)}).to(at::kFloat);
}

}  // namespace ds::optim
