#include "runtime/optim/kernels/widen.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace ds::optim {
namespace {

template <typename T>
class WidenTest : public ::testing::Test {};
using Types = ::testing::Types<c10::BFloat16, c10::Half>;
TYPED_TEST_SUITE(WidenTest, Types);

// By bits: NaN is none of its equals.
TYPED_TEST(WidenTest, EveryValueIsWidenedAsByLibTorch) {
  std::vector<TypeParam> narrow;
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
    narrow.emplace_back(static_cast<std::uint16_t>(bits), TypeParam::from_bits());
  }
  std::vector<float> wide(narrow.size());
  Widen(narrow.data(), std::ssize(narrow), wide.data());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(narrow[i])))
        << i;
  }
}

// Every exponent and sign, the leading bits of the fraction, and behind them what decides a tie.
TYPED_TEST(WidenTest, RoundsAsLibTorchDoes) {
  std::vector<float> wide;
  for (std::uint32_t high = 0; high < 1U << 16; ++high) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x0FFFU, 0x1000U, 0x1001U, 0x3000U, 0x7FFFU,
                                    0x8000U, 0x8001U, 0xFFFFU}) {
      wide.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  std::vector<TypeParam> narrow(wide.size());
  Round(wide.data(), std::ssize(wide), narrow.data());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(narrow[i].x, static_cast<TypeParam>(wide[i]).x) << wide[i];
  }
}

TYPED_TEST(WidenTest, TakesAnyCountAndWritesNoMore) {
  for (std::int64_t count = 0; count < 70; ++count) {
    const std::vector<TypeParam> ones(static_cast<std::size_t>(count), TypeParam(1.0F));
    std::vector<float> wide(80, 7.0F);
    Widen(ones.data(), count, wide.data());
    std::vector<TypeParam> narrow(80, TypeParam(7.0F));
    Round(wide.data(), count, narrow.data());
    for (std::int64_t i = 0; i < 80; ++i) {
      const float expected = i < count ? 1.0F : 7.0F;
      ASSERT_EQ(wide[static_cast<std::size_t>(i)], expected);
      ASSERT_EQ(static_cast<float>(narrow[static_cast<std::size_t>(i)]), expected);
    }
  }
}

}  // namespace
}  // namespace ds::optim
