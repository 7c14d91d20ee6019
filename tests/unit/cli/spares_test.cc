#include "cli/job/spares.h"

#include <gtest/gtest.h>

#include "cli/job/job_request.h"

namespace ds::cli {
namespace {

TEST(SparePoolTest, GivesTheFirstThatFitsAndEachOnce) {
  SparePool pool({4, 2, 4});
  EXPECT_EQ(pool.Take(3), std::nullopt);
  EXPECT_TRUE(pool.Covers({4, 4, 2}));
  EXPECT_FALSE(pool.Covers({4, 4, 4}));
  EXPECT_EQ(pool.Take(4), 0);
  EXPECT_FALSE(pool.Covers({4, 4}));
  EXPECT_EQ(pool.Take(4), 2);
  EXPECT_EQ(pool.Take(4), std::nullopt);
  EXPECT_EQ(pool.Take(2), 1);
  EXPECT_TRUE(pool.Covers({}));
}

TEST(PutInPlaceTest, TheRanksKeepTheirNumbersAndGetTheSparesSlots) {
  JobRequest job{
      .plan = PlanWorld({{.host = "a", .slots = {0, 1}}, {.host = "b", .slots = {0, 1}}}),
      .working_directories = {"/a", "/b"},
      .exports = {{{"A", "1"}}, {{"B", "1"}}}};
  job.plan.ranks[3].cores = {1};
  PutInPlace({.slots = {.host = "c", .slots = {4, 6}, .devices = {"4", "6"}},
              .working_directory = "/c",
              .exports = {{"C", "1"}},
              .remote = true},
             1, &job);
  EXPECT_EQ(job.plan.world_size(), 4);
  const PlannedRank& last = job.plan.ranks[3];
  EXPECT_EQ(job.plan.host_of(last).host, "c");
  EXPECT_EQ(last.local_rank, 1);
  EXPECT_EQ(last.slot, 6);
  EXPECT_TRUE(last.cores.empty());
  EXPECT_EQ(job.plan.hosts[1].devices, (std::vector<std::string>{"4", "6"}));
  EXPECT_EQ(job.plan.hosts[0].host, "a");
  EXPECT_EQ(job.working_directories, (std::vector<std::string>{"/a", "/c"}));
  EXPECT_EQ(job.exports[1], (Environment{{"C", "1"}}));
  EXPECT_EQ(job.remote, (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace ds::cli
