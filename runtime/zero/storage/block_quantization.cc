#include "runtime/zero/storage/block_quantization.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace ds::zero {
namespace {

// Elements processed at once, so that intermediate values stay in the cache.
constexpr std::int64_t kPart = 64 * kQuantizationBlock;
constexpr double kTiny = 1e-30;

std::int64_t CountBlocks(std::int64_t count) {
  return (count + kQuantizationBlock - 1) / kQuantizationBlock;
}

struct QuantizedViews {
  at::Tensor scales;    // [blocks], fp32
  at::Tensor elements;  // kChar
};

QuantizedViews Split(const at::Tensor& bytes, std::int64_t count) {
  const auto scale_bytes = CountBlocks(count) * static_cast<std::int64_t>(sizeof(float));
  return {bytes.narrow(0, 0, scale_bytes).view(at::kFloat),
          bytes.narrow(0, scale_bytes, bytes.numel() - scale_bytes).view(at::kChar)};
}

// Calls visit(start, rows, row_length) for runs of full blocks, and for a shorter last block.
template <typename Visit>
void ForEachPart(std::int64_t count, Visit visit) {
  const std::int64_t full_end = count / kQuantizationBlock * kQuantizationBlock;
  for (std::int64_t start = 0; start < full_end; start += kPart) {
    visit(start, std::min(kPart, full_end - start) / kQuantizationBlock, kQuantizationBlock);
  }
  if (full_end < count) visit(full_end, std::int64_t{1}, count - full_end);
}

at::Tensor Pack(const at::Tensor& elements, QuantizedBits bits) {
  if (bits == QuantizedBits::k8) return elements;
  const at::Tensor pairs = elements.view({-1, 2});
  return at::bitwise_or(at::bitwise_and(pairs.select(1, 0), 0xF),
                        at::bitwise_left_shift(pairs.select(1, 1), 4));
}

at::Tensor Unpack(const at::Tensor& packed, QuantizedBits bits) {
  if (bits == QuantizedBits::k8) return packed;
  const at::Tensor pairs = at::empty({packed.numel(), 2}, packed.options());
  pairs.select(1, 0).copy_(at::bitwise_right_shift(at::bitwise_left_shift(packed, 4), 4));
  pairs.select(1, 1).copy_(at::bitwise_right_shift(packed, 4));
  return pairs.view({-1});
}

void CheckRange(const QuantizedRange& range, std::int64_t values, QuantizedBits bits,
                const at::Tensor& bytes) {
  const std::int64_t end = range.first + values;
  DS_CHECK(bytes.numel() == CountQuantizedBytes(range.count, bits));
  DS_CHECK(range.first % kQuantizationBlock == 0);
  DS_CHECK(end == range.count || (end < range.count && end % kQuantizationBlock == 0));
}

}  // namespace

void Quantize(const at::Tensor& values, QuantizedBits bits, const at::Tensor& bytes) {
  Quantize(values, bits, bytes, {0, values.numel()});
}

void Quantize(const at::Tensor& values, QuantizedBits bits, const at::Tensor& bytes,
              const QuantizedRange& range) {
  CheckRange(range, values.numel(), bits, bytes);
  const QuantizedViews out = Split(bytes, range.count);
  const int width = static_cast<int>(bits);
  const double half = 1 << (width - 1);
  ForEachPart(values.numel(), [&](std::int64_t start, std::int64_t rows, std::int64_t length) {
    const at::Tensor part =
        values.narrow(0, start, rows * length).view({rows, length}).to(at::kFloat);
    const at::Tensor largest = at::amax(part.abs(), 1);
    // Tiny blocks become zeros: their factor would be infinite.
    const at::Tensor factor = largest.reciprocal().mul_(half).masked_fill_(largest < kTiny, 1.0);
    const std::int64_t at = range.first + start;
    out.scales.narrow(0, at / kQuantizationBlock, rows).copy_(factor.reciprocal());
    const at::Tensor elements =
        part.mul(factor.unsqueeze(1)).round_().clamp_(-half, half - 1).to(at::kChar).view({-1});
    out.elements.narrow(0, at * width / 8, rows * length * width / 8).copy_(Pack(elements, bits));
  });
}

void Dequantize(const at::Tensor& bytes, QuantizedBits bits, const at::Tensor& values) {
  Dequantize(bytes, bits, values, {0, values.numel()});
}

void Dequantize(const at::Tensor& bytes, QuantizedBits bits, const at::Tensor& values,
                const QuantizedRange& range) {
  CheckRange(range, values.numel(), bits, bytes);
  const QuantizedViews in = Split(bytes, range.count);
  const int width = static_cast<int>(bits);
  ForEachPart(values.numel(), [&](std::int64_t start, std::int64_t rows, std::int64_t length) {
    const std::int64_t at = range.first + start;
    const at::Tensor packed = in.elements.narrow(0, at * width / 8, rows * length * width / 8);
    const at::Tensor step = in.scales.narrow(0, at / kQuantizationBlock, rows);
    values.narrow(0, start, rows * length)
        .view({rows, length})
        .copy_(Unpack(packed, bits).view({rows, length}).to(at::kFloat).mul_(step.unsqueeze(1)));
  });
}

}  // namespace ds::zero
