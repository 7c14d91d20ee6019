#include "runtime/base/parse_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace ds {
namespace {

TEST(ParseNumberTest, TheFullTextIsTheNumber) {
  EXPECT_EQ(ParseNumber<int>("0"), 0);
  EXPECT_EQ(ParseNumber<int>("-12"), -12);
  EXPECT_EQ(ParseNumber<int>("007"), 7);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x10", "1.0", "1e3", "-", "٣"}) {
    EXPECT_EQ(ParseNumber<int>(text), std::nullopt) << "'" << text << "'";
  }
}

TEST(ParseNumberTest, TheTypeMustHoldIt) {
  EXPECT_EQ(ParseNumber<int>("2147483647"), 2147483647);
  EXPECT_EQ(ParseNumber<int>("2147483648"), std::nullopt);
  EXPECT_EQ(ParseNumber<std::uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(ParseNumber<std::uint64_t>("18446744073709551616"), std::nullopt);
  EXPECT_EQ(ParseNumber<std::uint32_t>("-1"), std::nullopt);
}

TEST(ParseNumberTest, InAnotherBase) {
  EXPECT_EQ(ParseNumber<int>("777", 8), 0777);
  EXPECT_EQ(ParseNumber<int>("778", 8), std::nullopt);
  EXPECT_EQ(ParseNumber<std::uint32_t>("fFfFfFfF", 16), 0xFFFFFFFFU);
}

TEST(ParseNumberTest, FloatingPoint) {
  EXPECT_EQ(ParseNumber<double>("0.5"), 0.5);
  EXPECT_EQ(ParseNumber<double>("-1e-3"), -1e-3);
  EXPECT_TRUE(std::isnan(ParseNumber<double>("nan").value_or(0)));
  for (const char* text : {"", "0.5 ", "0,5", "1e400", "one"}) {
    EXPECT_EQ(ParseNumber<double>(text), std::nullopt) << "'" << text << "'";
  }
}

}  // namespace
}  // namespace ds
