// Sixteen lanes round and widen as one number does.

#include "runtime/models/kernels/vector_lanes.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace ds::models {
namespace {

// Every sign, exponent and upper mantissa, with remainders around half of what is rounded away.
std::vector<float> EveryKindOfNumber() {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    for (const std::uint32_t lower :
         {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return values;
}

template <typename Narrow>
class NarrowLanes : public ::testing::Test {};
using NarrowTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(NarrowLanes, NarrowTypes);

TYPED_TEST(NarrowLanes, RoundAsOneNumberDoes) {
  const std::vector<float> values = EveryKindOfNumber();
  for (std::size_t first = 0; first < values.size(); first += kLanes) {
    TypeParam stored[kLanes];
    Store(stored, Load(values.data() + first));
    for (std::size_t i = 0; i < kLanes; ++i) {
      ASSERT_EQ(stored[i].bits, RoundTo<TypeParam>(values[first + i]).bits) << values[first + i];
    }
  }
}

TYPED_TEST(NarrowLanes, WidenAsOneNumberDoes) {
  for (std::uint32_t first = 0; first < 0x10000u; first += kLanes) {
    TypeParam narrow[kLanes];
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      narrow[i].bits = static_cast<std::uint16_t>(first + i);
    }
    float wide[kLanes];
    Store(wide, Load(narrow));
    for (std::size_t i = 0; i < kLanes; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]),
                std::bit_cast<std::uint32_t>(Widen(narrow[i])));
    }
  }
}

TEST(VectorLanes, OfTheEndOfARowKeepLaterBytes) {
  const float row[kLanes] = {1, 2, 3, 4, 5};
  float copy[kLanes] = {9, 9, 9, 9, 9};
  const Floats lanes = LoadPartial(row, 3);
  EXPECT_EQ(AddLanes(lanes), 6.0);
  StorePartial(copy, lanes, 3);
  EXPECT_EQ(copy[2], 3.0F);
  EXPECT_EQ(copy[3], 9.0F);
}

}  // namespace
}  // namespace ds::models
