#include "runtime/optim/kernels/flat_block.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <bit>
#include <type_traits>
#include <vector>

namespace ds::optim {
namespace {

template <typename T>
class Conversions : public ::testing::Test {
 protected:
  using Torch = std::conditional_t<std::is_same_v<T, BFloat16>, c10::BFloat16, c10::Half>;
};
using Types = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(Conversions, Types);

// By bits: NaN is none of its equals.
TYPED_TEST(Conversions, EveryValueIsWidenedAsByLibTorch) {
  using Torch = typename TestFixture::Torch;
  std::vector<TypeParam> narrow;
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
    narrow.push_back({static_cast<std::uint16_t>(bits)});
  }
  std::vector<float> wide(narrow.size());
  Widen(narrow.data(), std::ssize(narrow), wide.data());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const float torch = static_cast<float>(Torch(narrow[i].bits, Torch::from_bits()));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(torch)) << i;
  }
}

// Every exponent and sign, the leading bits of the fraction, and behind them what decides a tie.
TYPED_TEST(Conversions, RoundAsLibTorchDoes) {
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
    ASSERT_EQ(narrow[i].bits, static_cast<typename TestFixture::Torch>(wide[i]).x) << wide[i];
  }
}

TYPED_TEST(Conversions, TakeAnyCountAndWriteNoMore) {
  for (std::int64_t count = 0; count < 70; ++count) {
    const std::vector<TypeParam> ones(static_cast<std::size_t>(count), RoundTo<TypeParam>(1.0F));
    std::vector<float> wide(80, 7.0F);
    Widen(ones.data(), count, wide.data());
    std::vector<TypeParam> narrow(80, RoundTo<TypeParam>(7.0F));
    Round(wide.data(), count, narrow.data());
    for (std::int64_t i = 0; i < 80; ++i) {
      const float expected = i < count ? 1.0F : 7.0F;
      ASSERT_EQ(wide[static_cast<std::size_t>(i)], expected);
      ASSERT_EQ(Widen(narrow[static_cast<std::size_t>(i)]), expected);
    }
  }
}

}  // namespace
}  // namespace ds::optim
