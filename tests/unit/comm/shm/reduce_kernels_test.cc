#include "runtime/comm/shm/reduce_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace ds::comm {
namespace {

template <typename T>
std::vector<T> Reduce(const std::vector<std::vector<T>>& ranks, ElementType type, ReduceOp op) {
  std::vector<const std::byte*> sources;
  for (const auto& values : ranks) {
    sources.push_back(reinterpret_cast<const std::byte*>(values.data()));
  }
  std::vector<T> output(ranks[0].size());
  ReduceInRankOrder(reinterpret_cast<std::byte*>(output.data()), sources, output.size(), type, op);
  return output;
}

std::vector<std::uint16_t> AllBitPatterns() {
  std::vector<std::uint16_t> patterns(1 << 16);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return patterns;
}

// fp16 as the standard defines it, digit by digit.
double HalfValue(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool IsNan16(std::uint16_t bits, std::uint16_t infinity) { return (bits & 0x7fff) > infinity; }

TEST(ReduceKernelsTest, WideningAndRoundingKeepEveryHalfAndBfloat16) {
  const std::vector<std::uint16_t> patterns = AllBitPatterns();
  for (const auto& [type, infinity] :
       {std::pair(ElementType::kFloat16, 0x7c00), std::pair(ElementType::kBFloat16, 0x7f80)}) {
    const std::vector<std::uint16_t> same = Reduce<std::uint16_t>({patterns}, type, ReduceOp::kSum);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (IsNan16(patterns[i], static_cast<std::uint16_t>(infinity))) {
        EXPECT_TRUE(IsNan16(same[i], static_cast<std::uint16_t>(infinity)));
      } else {
        EXPECT_EQ(same[i], patterns[i]);
      }
    }
  }
}

// Every half plus a value that forces rounding: the result is the nearest half, ties to even.
TEST(ReduceKernelsTest, HalfSumsRoundToNearestEven) {
  const std::vector<std::uint16_t> patterns = AllBitPatterns();
  for (const std::uint16_t addend : {0x0001, 0x03ff, 0x1400, 0x3c01, 0x5bff, 0x7bff}) {
    const std::vector<std::uint16_t> others(patterns.size(), addend);
    const std::vector<std::uint16_t> sums =
        Reduce<std::uint16_t>({patterns, others}, ElementType::kFloat16, ReduceOp::kSum);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const double exact = static_cast<float>(HalfValue(patterns[i]) + HalfValue(addend));
      if (std::isnan(exact)) {
        EXPECT_TRUE(IsNan16(sums[i], 0x7c00));
        continue;
      }
      if (std::abs(exact) >= 65520) {
        EXPECT_EQ(sums[i] & 0x7fff, 0x7c00) << exact;
        continue;
      }
      const double error = std::abs(HalfValue(sums[i]) - exact);
      const std::uint16_t magnitude = sums[i] & 0x7fff;
      for (const int step : {-1, 1}) {
        if (magnitude + step < 0 || magnitude + step > 0x7bff) continue;
        const auto neighbour = static_cast<std::uint16_t>((sums[i] & 0x8000) | (magnitude + step));
        const double other_error = std::abs(HalfValue(neighbour) - exact);
        EXPECT_LE(error, other_error) << exact;
        if (error == other_error) {
          EXPECT_EQ(magnitude % 2, 0) << exact;
        }
      }
    }
  }
}

TEST(ReduceKernelsTest, Bfloat16AccumulatesInFloat) {
  // 256 + 1 + 1: in bf16 each addition would be lost, in fp32 the sum is 258.
  const auto bf16 = [](float value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  };
  const std::vector<std::uint16_t> sum = Reduce<std::uint16_t>(
      {{bf16(256)}, {bf16(1)}, {bf16(1)}}, ElementType::kBFloat16, ReduceOp::kSum);
  EXPECT_EQ(sum[0], bf16(258));
}

TEST(ReduceKernelsTest, AnAverageIsTheSumDividedOnce) {
  const std::vector<float> average = Reduce<float>({{1.0f, 5.0f}, {2.0f, 5.0f}, {7.0f, 1.0f}},
                                                   ElementType::kFloat32, ReduceOp::kAvg);
  EXPECT_EQ(average, (std::vector<float>{10.0f / 3, 11.0f / 3}));
}

TEST(ReduceKernelsTest, ANanOfAnyRankSurvivesMaxAndMin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    const std::vector<float> result =
        Reduce<float>({{nan, 1.0f}, {1.0f, nan}}, ElementType::kFloat32, op);
    EXPECT_TRUE(std::isnan(result[0]));
    EXPECT_TRUE(std::isnan(result[1]));
  }
}

TEST(ReduceKernelsTest, BoolIsOrAndAnd) {
  const std::vector<std::vector<std::uint8_t>> ranks = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  const std::vector<std::uint8_t> any = {0, 1, 1, 1};
  const std::vector<std::uint8_t> all = {0, 0, 0, 1};
  EXPECT_EQ(Reduce(ranks, ElementType::kBool, ReduceOp::kSum), any);
  EXPECT_EQ(Reduce(ranks, ElementType::kBool, ReduceOp::kMax), any);
  EXPECT_EQ(Reduce(ranks, ElementType::kBool, ReduceOp::kMin), all);
  EXPECT_EQ(Reduce(ranks, ElementType::kBool, ReduceOp::kProduct), all);
}

TEST(ReduceKernelsTest, IntegersWrapAround) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(Reduce<std::int32_t>({{kMax}, {1}}, ElementType::kInt32, ReduceOp::kSum)[0], kMin);
  EXPECT_EQ(Reduce<std::int32_t>({{kMin}, {-1}}, ElementType::kInt32, ReduceOp::kProduct)[0], kMin);
  EXPECT_EQ(Reduce<std::uint8_t>({{200}, {100}}, ElementType::kUInt8, ReduceOp::kSum)[0], 44);
}

TEST(ReduceKernelsTest, TheOutputMayBeASource) {
  std::vector<double> a(3000, 1.5);
  const std::vector<double> b(3000, 2.0);
  const std::array<const std::byte*, 2> sources = {reinterpret_cast<const std::byte*>(b.data()),
                                                   reinterpret_cast<const std::byte*>(a.data())};
  ReduceInRankOrder(reinterpret_cast<std::byte*>(a.data()), sources, a.size(),
                    ElementType::kFloat64, ReduceOp::kProduct);
  EXPECT_EQ(a, std::vector<double>(3000, 3.0));
}

// However the ranks are divided, also where every value is rounded.
TEST(ReduceKernelsTest, ChunksGiveTheBitsOfAllRanksAtOnce) {
  constexpr std::size_t kCount = 3000;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    const std::size_t size = ElementBytes(type);
    std::vector<std::vector<std::uint16_t>> ranks(5);
    std::vector<const std::byte*> sources;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::size_t i = 0; i < kCount * size / 2; ++i) {
        ranks[rank].push_back(static_cast<std::uint16_t>(0x3f00 + (i * 37 + rank * 91) % 256));
      }
      sources.push_back(reinterpret_cast<const std::byte*>(ranks[rank].data()));
    }
    std::vector<std::byte> full(kCount * size);
    ReduceInRankOrder(full.data(), sources, kCount, type, ReduceOp::kAvg);
    for (std::size_t cut = 1; cut < ranks.size(); ++cut) {
      std::vector<std::byte> sums(kCount * ElementBytes(AccumulatorType(type)));
      std::vector<std::byte> result(kCount * size);
      const std::span<const std::byte* const> all = sources;
      ContinueReduction(sums.data(), all.first(cut), kCount, type, ReduceOp::kAvg, {});
      ContinueReduction(result.data(), all.subspan(cut), kCount, type, ReduceOp::kAvg,
                        {.before = sums.data(), .ranks = 5});
      EXPECT_EQ(result, full) << ElementTypeName(type) << " cut behind rank " << cut;
    }
  }
}

}  // namespace
}  // namespace ds::comm
