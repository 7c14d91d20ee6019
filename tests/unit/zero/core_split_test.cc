#include "runtime/plan/zero/core_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CoreSplitTest, TheFirstCoresComputeAndTheLastOnesUpdate) {
  const CoreSplit half = SplitCores({4, 5, 6, 7}, 0.5);
  EXPECT_THAT(half.compute, ElementsAre(4, 5));
  EXPECT_THAT(half.update, ElementsAre(6, 7));
  EXPECT_THAT(half.why_not, IsEmpty());
  const CoreSplit fifth = SplitCores({0, 1, 2, 8, 9}, 1.0 - 0.8);  // a little above 0.2
  EXPECT_THAT(fifth.compute, ElementsAre(0));
  EXPECT_THAT(fifth.update, ElementsAre(1, 2, 8, 9));
  EXPECT_THAT(SplitCores({0, 1, 2, 3, 4}, 0.5).compute, ElementsAre(0, 1, 2)) << "rounded up";
}

TEST(CoreSplitTest, NoSideIsWithoutACore) {
  for (const double share : {0.01, 0.99}) {
    const CoreSplit split = SplitCores({2, 3}, share);
    EXPECT_THAT(split.compute, ElementsAre(2));
    EXPECT_THAT(split.update, ElementsAre(3));
  }
}

TEST(CoreSplitTest, GivesTheReasonForNoSplit) {
  EXPECT_THAT(SplitCores({3}, 0.5).why_not, HasSubstr("one core"));
  for (const double share : {0.0, 1.0}) {
    const CoreSplit split = SplitCores({0, 1, 2, 3}, share);
    EXPECT_THAT(split.why_not, HasSubstr("without a core"));
    EXPECT_THAT(split.compute, IsEmpty());
    EXPECT_THAT(split.update, IsEmpty());
  }
}

TEST(CoreSplitTest, RanksThatComputeAlikeLeaveACoreOfALargerPartIdle) {
  const std::vector<int> cores = {0, 1, 2, 3, 4};
  const CoreSplit larger = SplitCores(TakeOwnCores(cores, 0, 2), 0.5);
  const CoreSplit smaller = SplitCores(TakeOwnCores(cores, 1, 2), 0.5);
  ASSERT_THAT(larger.compute, ElementsAre(0, 1));
  ASSERT_THAT(smaller.compute, ElementsAre(3));
  EXPECT_THAT(LimitCompute(larger, 1).compute, ElementsAre(0));
  EXPECT_THAT(LimitCompute(larger, 1).update, ElementsAre(2)) << "as it was";
  EXPECT_THAT(LimitCompute(smaller, 2).compute, ElementsAre(3)) << "no more than there are";
}

TEST(CoreSplitTest, RanksThatAreNotBoundHaveEqualParts) {
  const std::vector<int> cores = {0, 1, 2, 3, 4};
  EXPECT_THAT(TakeOwnCores(cores, 0, 1), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(TakeOwnCores(cores, 0, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(TakeOwnCores(cores, 1, 2), ElementsAre(3, 4));
  EXPECT_THAT(TakeOwnCores({0, 1}, 2, 3), ElementsAre(0)) << "fewer cores than ranks";
}

}  // namespace
}  // namespace ds::zero
