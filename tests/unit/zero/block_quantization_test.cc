#include "runtime/zero/storage/block_quantization.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ds::zero {
namespace {

constexpr QuantizedBits kBits[] = {QuantizedBits::k4, QuantizedBits::k8};

at::Tensor ThereAndBack(const at::Tensor& values, QuantizedBits bits) {
  const at::Tensor bytes = at::empty({CountQuantizedBytes(values.numel(), bits)}, at::kByte);
  Quantize(values, bits, bytes);
  at::Tensor back = at::empty_like(values);
  Dequantize(bytes, bits, back);
  return back;
}

// The definition, an element at a time.
float Expected(float value, float largest, QuantizedBits bits) {
  const auto half = static_cast<float>(1 << (static_cast<int>(bits) - 1));
  const float factor = half / largest;
  const float element = std::clamp(std::nearbyint(value * factor), -half, half - 1);
  return element * (1.0F / factor);
}

TEST(BlockQuantization, FollowsTheDefinition) {
  for (const QuantizedBits bits : kBits) {
    for (const std::int64_t count : {8L, 2048L, 2056L, 64L * 2048, 64L * 2048 + 3 * 2048 + 1000}) {
      const at::Tensor values = at::randn({count});
      const at::Tensor back = ThereAndBack(values, bits);
      for (std::int64_t start = 0; start < count; start += kQuantizationBlock) {
        const std::int64_t length = std::min(kQuantizationBlock, count - start);
        const float largest = values.narrow(0, start, length).abs().max().item<float>();
        for (std::int64_t i = start; i < start + length; i += 7) {
          const float value = values.const_data_ptr<float>()[i];
          const float got = back.const_data_ptr<float>()[i];
          ASSERT_FLOAT_EQ(got, Expected(value, largest, bits)) << i << " of " << count;
          ASSERT_LE(std::abs(got - value),
                    1.0001F * largest / static_cast<float>(1 << (static_cast<int>(bits) - 1)));
        }
      }
    }
  }
}

TEST(BlockQuantization, EveryElementOfAByteComesBack) {
  const at::Tensor fours = at::arange(-8, 8, at::kFloat).repeat({4});
  EXPECT_TRUE(ThereAndBack(fours, QuantizedBits::k4).equal(fours));
  const at::Tensor eights = at::arange(-128, 128, at::kFloat);
  EXPECT_TRUE(ThereAndBack(eights, QuantizedBits::k8).equal(eights));
}

TEST(BlockQuantization, SomeBlocksAreWrittenAndReadByThemselves) {
  constexpr std::int64_t kCount = 3 * kQuantizationBlock + 1000;
  for (const QuantizedBits bits : kBits) {
    const at::Tensor values = at::randn({kCount});
    const at::Tensor full = at::empty({CountQuantizedBytes(kCount, bits)}, at::kByte);
    Quantize(values, bits, full);
    const at::Tensor parts = at::zeros_like(full);
    at::Tensor back = at::empty_like(values);
    for (const auto& [first, count] : {std::pair(2 * kQuantizationBlock, std::int64_t{3048}),
                                       std::pair(std::int64_t{0}, 2 * kQuantizationBlock)}) {
      Quantize(values.narrow(0, first, count), bits, parts, {first, kCount});
      Dequantize(parts, bits, back.narrow(0, first, count), {first, kCount});
    }
    EXPECT_TRUE(parts.equal(full));
    EXPECT_TRUE(back.equal(ThereAndBack(values, bits)));
  }
}

TEST(BlockQuantization, ZerosAndTheSmallestNumbersBecomeZeros) {
  for (const QuantizedBits bits : kBits) {
    EXPECT_TRUE(ThereAndBack(at::zeros({64}), bits).equal(at::zeros({64})));
    const at::Tensor tiny = at::zeros({64}).fill_(std::numeric_limits<float>::denorm_min());
    EXPECT_TRUE(ThereAndBack(tiny, bits).equal(at::zeros({64})));
  }
}

// A gradient that has overflown is looked for on the other side.
TEST(BlockQuantization, KeepsNonFiniteValues) {
  for (const QuantizedBits bits : kBits) {
    for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      at::Tensor values = at::randn({2 * kQuantizationBlock});
      values[5] = bad;
      const at::Tensor back = ThereAndBack(values, bits);
      EXPECT_FALSE(std::isfinite(back.narrow(0, 0, kQuantizationBlock).sum().item<float>()));
      EXPECT_TRUE(
          back.narrow(0, kQuantizationBlock, kQuantizationBlock).isfinite().all().item<bool>());
    }
  }
}

TEST(BlockQuantization, TakesTheBytesItSays) {
  EXPECT_EQ(CountQuantizedBytes(2048, QuantizedBits::k8), 2048 + 4);
  EXPECT_EQ(CountQuantizedBytes(2056, QuantizedBits::k4), 1028 + 8);
  const at::Tensor half = at::randn({4096}).to(at::kBFloat16);
  EXPECT_EQ(ThereAndBack(half, QuantizedBits::k8).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace ds::zero
