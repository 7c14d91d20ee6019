#include "cli/launch/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cli/launch/environment.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(WorldPlanTest, RanksGoHostByHostAndLocalRanksCountFromZero) {
  const WorldPlan plan =
      PlanWorld({{.host = "a", .slots = {0, 2}}, {.host = "b", .slots = {1, 2, 3, 5}}});
  EXPECT_EQ(plan.world_size(), 6);
  std::vector<std::vector<int>> rows;
  for (const PlannedRank& rank : plan.ranks) {
    rows.push_back({rank.rank, rank.node_rank, rank.local_rank, rank.slot});
  }
  EXPECT_THAT(
      rows, ElementsAre(ElementsAre(0, 0, 0, 0), ElementsAre(1, 0, 1, 2), ElementsAre(2, 1, 0, 1),
                        ElementsAre(3, 1, 1, 2), ElementsAre(4, 1, 2, 3), ElementsAre(5, 1, 3, 5)));
}

TEST(WorldPlanTest, BindsCoresOfOneHostByLocalRank) {
  WorldPlan plan = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0, 1}}});
  ASSERT_TRUE(BindCores({.cores = {4, 5, 6}}, 1, &plan).ok());
  EXPECT_THAT(plan.ranks[0].cores, ElementsAre());
  EXPECT_THAT(plan.ranks[1].cores, ElementsAre(4, 5));
  EXPECT_THAT(plan.ranks[2].cores, ElementsAre(6));
  EXPECT_EQ(BindCores({.cores = {4}}, 1, &plan).message(),
            "host 'b': --bind_cores_to_rank: 2 ranks cannot share 1 core");
}

TEST(RankEnvironmentTest, EveryNameOnceWithItsMeaning) {
  WorldPlan plan = PlanWorld({{.host = "a", .slots = {0}, .devices = {"0"}},
                              {.host = "b", .slots = {1, 3}, .devices = {"1", "3"}}});
  const JobEnvironment job{.job_id = "job-1",
                           .generation = 2,
                           .max_restarts = 5,
                           .master_addr = "a",
                           .master_port = 29500,
                           .threads_per_rank = 4};
  EXPECT_THAT(
      MakeRankEnvironment(plan, plan.ranks[2], job),
      ElementsAre(
          Pair("RANK", "2"), Pair("LOCAL_RANK", "1"), Pair("WORLD_SIZE", "3"),
          Pair("LOCAL_WORLD_SIZE", "2"), Pair("LOCAL_SIZE", "2"), Pair("GROUP_RANK", "1"),
          Pair("NODE_RANK", "1"), Pair("CROSS_RANK", "1"), Pair("CROSS_SIZE", "2"),
          Pair("GROUP_WORLD_SIZE", "2"), Pair("MASTER_ADDR", "a"), Pair("MASTER_PORT", "29500"),
          Pair("CUDA_VISIBLE_DEVICES", "1,3"), Pair("OMP_NUM_THREADS", "4"),
          Pair("ROLE_NAME", "default"), Pair("ROLE_RANK", "2"), Pair("ROLE_WORLD_SIZE", "3"),
          Pair("TORCHELASTIC_RESTART_COUNT", "2"), Pair("TORCHELASTIC_MAX_RESTARTS", "5"),
          Pair("TORCHELASTIC_USE_AGENT_STORE", "False"), Pair("TORCHELASTIC_RUN_ID", "job-1"),
          Pair("DSRUN_JOB_ID", "job-1"), Pair("DSRUN_GENERATION", "2")));
}

std::map<std::string, std::string> AsMap(const Environment& environment) {
  return {environment.begin(), environment.end()};
}

TEST(RankEnvironmentTest, OmitsUnknownValues) {
  const WorldPlan plan = PlanWorld({{.host = "a", .slots = {0}}});
  const auto environment = AsMap(MakeRankEnvironment(plan, plan.ranks[0], {.master_addr = "x"}));
  EXPECT_FALSE(environment.contains("MASTER_PORT"));
  EXPECT_FALSE(environment.contains("CUDA_VISIBLE_DEVICES"));
  EXPECT_FALSE(environment.contains("OMP_NUM_THREADS"));
  EXPECT_FALSE(environment.contains("TORCHELASTIC_RUN_ID"));
}

TEST(RankEnvironmentTest, TheUserMayNameTheRunAndTheRole) {
  const WorldPlan plan = PlanWorld({{.host = "a", .slots = {0}}});
  const JobEnvironment job{.job_id = "job-1", .run_id = "mine", .role = "trainer"};
  const auto environment = AsMap(MakeRankEnvironment(plan, plan.ranks[0], job));
  EXPECT_EQ(environment.at("TORCHELASTIC_RUN_ID"), "mine");
  EXPECT_EQ(environment.at("ROLE_NAME"), "trainer");
  EXPECT_EQ(environment.at("DSRUN_JOB_ID"), "job-1");
}

TEST(RankEnvironmentTest, OneDevicePerRankMasksTheOthers) {
  const WorldPlan plan = PlanWorld({{.host = "a", .slots = {3, 1}, .devices = {"3", "1"}}});
  const JobEnvironment job{.one_device_per_rank = true};
  EXPECT_EQ(AsMap(MakeRankEnvironment(plan, plan.ranks[1], job))["CUDA_VISIBLE_DEVICES"], "1");
}

TEST(RankEnvironmentTest, ThreadsAreTheBoundCoresUnlessTheUserHasSetThem) {
  WorldPlan plan = PlanWorld({{.host = "a", .slots = {0}}});
  ASSERT_TRUE(BindCores({.cores = {0, 1, 2}}, 0, &plan).ok());
  JobEnvironment job{.threads_per_rank = 8};
  EXPECT_EQ(AsMap(MakeRankEnvironment(plan, plan.ranks[0], job))["OMP_NUM_THREADS"], "3");
  job.user_set_threads = true;
  EXPECT_FALSE(AsMap(MakeRankEnvironment(plan, plan.ranks[0], job)).contains("OMP_NUM_THREADS"));
}

TEST(MasterAddressTest, LoopbackForOneHostElseTheFirst) {
  EXPECT_EQ(ChooseMasterAddress(PlanWorld({{.host = "far", .slots = {0, 1}}})), "127.0.0.1");
  EXPECT_EQ(
      ChooseMasterAddress(PlanWorld({{.host = "me@a", .slots = {0}}, {.host = "b", .slots = {0}}})),
      "a");
}

}  // namespace
}  // namespace ds::cli
