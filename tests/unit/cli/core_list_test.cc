#include "cli/launch/core_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

std::string CoreListError(std::string_view text) {
  const auto cores = ParseCoreList(text);
  return cores.ok() ? "accepted" : cores.status().message();
}

TEST(CoreListTest, NumbersAndRanges) {
  EXPECT_THAT(ParseCoreList("0,2-4,6,8-9").value(), ElementsAre(0, 2, 3, 4, 6, 8, 9));
  EXPECT_THAT(ParseCoreList("3-3").value(), ElementsAre(3));
  EXPECT_THAT(ParseCoreList("0").value(), ElementsAre(0));
  EXPECT_EQ(ParseCoreList("0-27,32-59").value().size(), 56u);
}

TEST(CoreListTest, RefusesListsThatDoNotAscend) {
  const std::string ascend = " is not above the entry before it; cores must ascend";
  const std::string neither = " is neither a core number nor a range like 0-3";
  EXPECT_EQ(CoreListError("0,2-6,5-9"), "core list: '5-9'" + ascend);
  EXPECT_EQ(CoreListError("8,2-6"), "core list: '2-6'" + ascend);
  EXPECT_EQ(CoreListError("0,0"), "core list: '0'" + ascend);
  EXPECT_EQ(CoreListError("0,1-3,3"), "core list: '3'" + ascend);
  EXPECT_EQ(CoreListError("1,6-2"), "core list: '6-2' ends before it starts");
  for (const char* part : {"", "0-", "-1", "-1-3", "a", "0-1-2", "0-3:2", " 2", "99999"}) {
    EXPECT_EQ(CoreListError(part), "core list: '" + std::string(part) + "'" + neither);
  }
}

TEST(DivideCoresTest, ContiguousShares) {
  std::vector<int> cores = ParseCoreList("0-27,32-59").value();
  const auto shares = DivideCores(cores, 4).value();
  EXPECT_EQ(shares[0], ParseCoreList("0-13").value());
  EXPECT_EQ(shares[1], ParseCoreList("14-27").value());
  EXPECT_EQ(shares[2], ParseCoreList("32-45").value());
  EXPECT_EQ(shares[3], ParseCoreList("46-59").value());
}

TEST(DivideCoresTest, NoCoreIsLeftOver) {
  std::vector<int> cores(56);
  std::iota(cores.begin(), cores.end(), 0);
  const auto shares = DivideCores(cores, 3).value();
  EXPECT_EQ(shares[0], ParseCoreList("0-18").value());
  EXPECT_EQ(shares[1], ParseCoreList("19-37").value());
  EXPECT_EQ(shares[2], ParseCoreList("38-55").value());
}

TEST(DivideCoresTest, EveryRankNeedsACore) {
  const auto shares = DivideCores({0, 1}, 4);
  ASSERT_FALSE(shares.ok());
  EXPECT_EQ(shares.status().message(), "--bind_cores_to_rank: 4 ranks cannot share 2 cores");
}

}  // namespace
}  // namespace ds::cli
