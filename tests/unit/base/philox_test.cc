#include "runtime/base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace ds {
namespace {

// The vectors that come with the paper's code (Random123, kat_vectors: philox4x32, 10 rounds).
TEST(Philox, GivesThePapersKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeysDependOnEveryBitOfTheirInputs) {
  const std::uint64_t key = ExtendKey(7, 3);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(ExtendKey(7 ^ (std::uint64_t{1} << bit), 3), key) << bit;
    EXPECT_NE(ExtendKey(7, 3 ^ (std::uint64_t{1} << bit)), key) << bit;
  }
  EXPECT_NE(ExtendKey(7, "ab"), ExtendKey(7, "ba"));
}

TEST(DrawWords, CountsBeyond32Bits) {
  std::vector<std::uint32_t> words(12);
  DrawWords(5, {0xfffffffe, 6, 7, 8}, words);
  const PhiloxCounter last = Philox({0, 7, 7, 8}, 5);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), words.begin() + 8));
}

TEST(DrawNormal, ANumberDependsOnItsPlaceOnly) {
  std::vector<float> whole(3000);
  DrawNormal(11, 0, whole);
  for (const std::size_t first : {0U, 1U, 2U, 3U, 255U, 256U, 1023U}) {
    for (const std::size_t count : {1U, 2U, 5U, 256U, 1000U}) {
      std::vector<float> part(count);
      DrawNormal(11, first, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first))
          << first << " " << count;
    }
  }
  std::vector<float> far(8);
  DrawNormal(11, std::uint64_t{1} << 40, far);
  EXPECT_FALSE(std::equal(far.begin(), far.end(), whole.begin()));
}

// Fixed for ever: saved seeds lead to these weights, on every machine.
TEST(DrawNormal, GivesTheSameBitsEverywhere) {
  std::vector<float> numbers(4);
  DrawNormal(1234, 0, numbers);
  EXPECT_EQ(numbers,
            (std::vector<float>{-0x1.cde7cap-1F, -0x1.d1bfd2p+0F, 0x1.f2550ep-1F, 0x1.4e28dcp+0F}));
}

TEST(DrawNormal, IsNormal) {
  constexpr std::size_t kCount = 1 << 20;
  const double n = kCount;
  std::vector<float> numbers(kCount);
  DrawNormal(99, 5, numbers);
  double moments[5] = {};
  for (const float x : numbers) {
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(x, power) / n;
  }
  // Within four standard deviations of each moment's estimate.
  EXPECT_NEAR(moments[1], 0.0, 4.0 / std::sqrt(n));
  EXPECT_NEAR(moments[2], 1.0, 4.0 * std::sqrt(2.0 / n));
  EXPECT_NEAR(moments[3], 0.0, 4.0 * std::sqrt(15.0 / n));
  EXPECT_NEAR(moments[4], 3.0, 4.0 * std::sqrt(96.0 / n));
  // Neighbours are independent.
  double product = 0.0;
  for (std::size_t i = 1; i < kCount; ++i) product += double{numbers[i]} * numbers[i - 1] / n;
  EXPECT_NEAR(product, 0.0, 4.0 / std::sqrt(n));
  // Kolmogorov and Smirnov, at the 1 % level.
  std::sort(numbers.begin(), numbers.end());
  double distance = 0.0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double expected = 0.5 * std::erfc(-numbers[i] / std::sqrt(2.0));
    distance = std::max({distance, std::abs(expected - static_cast<double>(i) / n),
                         std::abs(expected - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LT(distance, 1.63 / std::sqrt(n));
}

}  // namespace
}  // namespace ds
