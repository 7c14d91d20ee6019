#include "runtime/plan/zero/zenflow_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::zero {
namespace {

using config::ZenFlowConfig;
using ::testing::ElementsAre;

// What the updates from 1 on do, one letter each: S selects and updates the important columns, i
// updates these, . neither; capitals beside them, as "SA", where the rest is updated.
std::string Draw(const ZenFlowConfig& config, std::int64_t updates) {
  std::string drawn;
  for (std::int64_t update = 1; update <= updates; ++update) {
    const ZenFlowStep step = PlanZenFlowStep(config, update);
    drawn += step.selects ? "S" : step.has_important ? "i" : ".";
    drawn += step.updates_unselected ? "A " : " ";
  }
  return drawn;
}

TEST(ZenFlowScheduleTest, OtherColumnsFollowTheirIntervalAndEverySelection) {
  EXPECT_EQ(Draw({.select_interval = 6, .update_interval = 2}, 8), "S iA i iA i iA S iA ");
  EXPECT_EQ(Draw({.select_interval = 5, .update_interval = 3}, 7), "S i iA i iA SA i ");
  EXPECT_EQ(Draw({.select_interval = 0, .update_interval = 4}, 8), "S i i iA i i i iA ");
}

TEST(ZenFlowScheduleTest, AWarmUpUpdatesEverything) {
  EXPECT_EQ(Draw({.select_interval = 4, .update_interval = 2, .full_warm_up_rounds = 3}, 9),
            ".A .A .A SA SA i iA iA SA ");
}

TEST(ZenFlowScheduleTest, EpochsHaveAsManyStepsAsTheDataSays) {
  ZenFlowConfig config{.select_interval = 2, .counts_epochs = true, .update_interval = 2};
  EXPECT_EQ(SelectInterval(config), 0);
  config.steps_per_epoch = 3;
  EXPECT_EQ(SelectInterval(config), 6);
  EXPECT_EQ(Draw(config, 7), "S iA i iA i iA S ");
}

TEST(ZenFlowScheduleTest, WithoutAnIntervalTheSumsDecide) {
  EXPECT_EQ(Draw({.select_interval = 3}, 4), "S i iA S ");
}

TEST(ZenFlowScheduleTest, TheLargestColumnsAreChosen) {
  EXPECT_THAT(ChooseColumns({1, 5, 2, 4, 3}, 0.4), ElementsAre(1, 3));
  EXPECT_THAT(ChooseColumns({1, 5, 2, 4, 3}, 0.1), ElementsAre(1));
  EXPECT_THAT(ChooseColumns({2, 2, 2, 2}, 0.5), ElementsAre(0, 1));
  EXPECT_THAT(ChooseColumns({0}, 0.9), ElementsAre(0));
}

// By column: of ten one is important, and has 9 of each step's 18. The other nine have 9 in a
// step, a column's average 1: nine steps make a step's 9 of the important one.
TEST(ZenFlowScheduleTest, OtherColumnsAreDueOnceTheyWeighAStepOfTheImportant) {
  const ZenFlowConfig config{.topk_ratio = 0.1, .auto_ratio = 1.0};
  ZenFlowBalance balance;
  for (int step = 1; step < 9; ++step) {
    EXPECT_FALSE(balance.Add({{.important = 9.0, .unselected = 9.0}}, config)) << step;
  }
  EXPECT_TRUE(balance.Add({{.important = 9.0, .unselected = 9.01}}, config));
  balance.Clear();
  EXPECT_FALSE(balance.Add({{.important = 9.0, .unselected = 9.0}}, config));
}

TEST(ZenFlowScheduleTest, AsManyMatricesAsAutoRatioHaveToBeDue) {
  const std::vector<ZenFlowSums> sums = {{.important = 1.0, .unselected = 100.0},
                                         {.important = 100.0, .unselected = 1.0}};
  ZenFlowBalance half, all;
  EXPECT_TRUE(half.Add(sums, {.topk_ratio = 0.5, .auto_ratio = 0.5}));
  EXPECT_FALSE(all.Add(sums, {.topk_ratio = 0.5, .auto_ratio = 1.0}));
}

}  // namespace
}  // namespace ds::zero
