#include "runtime/models/kernels/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/philox.h"
#include "runtime/device/parallel.h"

namespace ds::models {
namespace {

// Philox counters of a row of the last dimension: {4 elements each, head, position, sample}.
struct DropoutRows {
  std::int64_t samples, heads, positions, width;
  std::int64_t first_counter, skipped;  // skipped: the first counter's elements of other ranks

  DropoutRows(at::IntArrayRef shape, const RandomPosition& origin)
      : samples(shape[0]),
        heads(shape.size() == 4 ? shape[1] : 1),
        positions(shape[shape.size() - 2]),
        width(shape.back()),
        first_counter(origin.first_column / 4),
        skipped(origin.first_column % 4) {
    TORCH_CHECK(shape.size() == 3 || shape.size() == 4,
                "dropout needs [samples, positions, width] or [samples, heads, positions, keys]");
  }
  std::int64_t count() const { return samples * heads * positions; }
  std::int64_t counters() const { return (skipped + width + 3) / 4; }
};

std::uint64_t KeyOf(const DropoutDraw& draw) {
  return ExtendKey(ExtendKey(draw.origin.key, static_cast<std::uint64_t>(draw.origin.block)),
                   static_cast<std::uint64_t>(draw.site));
}

// An element is dropped if its word is below the threshold.
std::int64_t Threshold(const DropoutDraw& draw) {
  return static_cast<std::int64_t>(draw.probability * 4294967296.0);
}

double ScaleOfKept(const DropoutDraw& draw) {
  return draw.probability < 1.0 ? 1.0 / (1.0 - draw.probability) : 0.0;
}

// Philox words as int64 tensors; their products wrap like unsigned ones.
struct TensorWords {
  static constexpr std::int64_t kWord = 0xFFFFFFFF;
  std::array<at::Tensor, 4> counter;

  static at::Tensor High(const at::Tensor& product) {
    return product.__rshift__(32).bitwise_and(kWord);
  }

  void Scramble(std::uint64_t key) {
    auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const at::Tensor a = counter[0] * std::int64_t{kPhiloxFactors[0]};
      const at::Tensor b = counter[2] * std::int64_t{kPhiloxFactors[1]};
      counter = {
          High(b).bitwise_xor(counter[1]).bitwise_xor(std::int64_t{low}), b.bitwise_and(kWord),
          High(a).bitwise_xor(counter[3]).bitwise_xor(std::int64_t{high}), a.bitwise_and(kWord)};
      low += kPhiloxKeySteps[0];
      high += kPhiloxKeySteps[1];
    }
  }
};

// Returns value_of(word) for each element, in fp32.
template <typename ValueOf>
at::Tensor DrawByLoop(at::IntArrayRef shape, const DropoutDraw& draw, ValueOf value_of) {
  const DropoutRows rows(shape, draw.origin);
  at::Tensor values = at::empty(shape, at::kFloat);
  auto* const out = values.mutable_data_ptr<float>();
  const std::uint64_t key = KeyOf(draw);
  device::ParallelFor(
      0, rows.count(), /*grain_size=*/64, [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::uint32_t> words(static_cast<std::size_t>(4 * rows.counters()));
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t position = draw.origin.PositionOf(row % rows.positions);
          const std::int64_t head = draw.origin.first_head + row / rows.positions % rows.heads;
          const std::int64_t sample = draw.origin.first_sample + row / rows.positions / rows.heads;
          DrawWords(
              key,
              {static_cast<std::uint32_t>(rows.first_counter), static_cast<std::uint32_t>(head),
               static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(sample)},
              words);
          for (std::int64_t i = 0; i < rows.width; ++i) {
            out[row * rows.width + i] = value_of(words[static_cast<std::size_t>(rows.skipped + i)]);
          }
        }
      });
  return values;
}

// Returns the word of each element, as int64.
at::Tensor DrawByOperators(at::IntArrayRef shape, const DropoutDraw& draw, c10::Device device) {
  const DropoutRows rows(shape, draw.origin);
  const auto integers = at::TensorOptions(at::kLong).device(device);
  // Dimensions: sample, head, position, and the counters of a row.
  const auto along = [&](std::int64_t first, std::int64_t count, at::IntArrayRef view) {
    return at::arange(first, first + count, integers).view(view);
  };
  const RandomPosition& origin = draw.origin;
  const at::Tensor own = along(0, rows.positions, {1, 1, -1, 1});
  at::Tensor positions = own.div(origin.stretch, "floor") * origin.stride +
                         own.remainder(origin.stretch) + origin.first_position;
  if (origin.before_last < rows.positions) {
    positions = at::where(own.lt(origin.before_last), positions,
                          own + (origin.last_position - origin.before_last));
  }
  TensorWords words{{along(rows.first_counter, rows.counters(), {1, 1, 1, -1}),
                     along(origin.first_head, rows.heads, {1, -1, 1, 1}), positions,
                     along(origin.first_sample, rows.samples, {-1, 1, 1, 1})}};
  words.Scramble(KeyOf(draw));
  return at::stack(words.counter, /*dim=*/-1)
      .flatten(-2)
      .narrow(-1, rows.skipped, rows.width)
      .reshape(shape);
}

}  // namespace

at::Tensor Dropout(const at::Tensor& x, const DropoutDraw& draw) {
  if (draw.probability == 0.0) return x;
  return x * DropoutFactors(x.sizes(), draw, x.options());
}

at::Tensor DropoutFactors(at::IntArrayRef shape, const DropoutDraw& draw,
                          const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return DropoutFactorsByOperators(shape, draw, options);
  const auto threshold = static_cast<std::uint64_t>(Threshold(draw));
  const auto kept = static_cast<float>(ScaleOfKept(draw));
  return DrawByLoop(shape, draw, [=](std::uint32_t word) { return word < threshold ? 0.0F : kept; })
      .to(options.dtype().toScalarType());
}

at::Tensor DropoutFactorsByOperators(at::IntArrayRef shape, const DropoutDraw& draw,
                                     const at::TensorOptions& options) {
  return DrawByOperators(shape, draw, options.device())
      .ge(Threshold(draw))
      .to(options.dtype().toScalarType())
      .mul_(ScaleOfKept(draw));
}

at::Tensor UniformNoise(at::IntArrayRef shape, const DropoutDraw& draw, double range,
                        const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return UniformNoiseByOperators(shape, draw, range, options);
  const auto value_of = [=](std::uint32_t word) {
    return static_cast<float>(((static_cast<double>(word) + 0.5) * 0x1p-31 - 1.0) * range);
  };
  return DrawByLoop(shape, draw, value_of).to(options.dtype().toScalarType());
}

at::Tensor UniformNoiseByOperators(at::IntArrayRef shape, const DropoutDraw& draw, double range,
                                   const at::TensorOptions& options) {
  return DrawByOperators(shape, draw, options.device())
      .to(at::kDouble)
      .add_(0.5)
      .mul_(0x1p-31)
      .sub_(1.0)
      .mul_(range)
      .to(at::kFloat)
      .to(options.dtype().toScalarType());
}

}  // namespace ds::models
