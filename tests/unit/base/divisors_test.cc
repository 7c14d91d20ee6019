#include "runtime/base/divisors.h"

#include <gtest/gtest.h>

namespace ds {
namespace {

TEST(DivisorsTest, NamesThoseOnBothSides) {
  EXPECT_EQ(NameNearestDivisors(8, 3), "2 or 4");
  EXPECT_EQ(NameNearestDivisors(60, 7), "6 or 10");
  EXPECT_EQ(NameNearestDivisors(7, 2), "1 or 7");
}

TEST(DivisorsTest, NamesTheOneThatThereIs) {
  EXPECT_EQ(NameNearestDivisors(8, 9), "8");
  EXPECT_EQ(NameNearestDivisors(1, 4), "1");
  EXPECT_EQ(NameNearestDivisors(1, std::int64_t{1} << 40), "1");
  EXPECT_EQ(NameNearestDivisors(6, 0), "1");
}

}  // namespace
}  // namespace ds
