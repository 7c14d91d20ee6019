#include "runtime/config/comm_bench_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::config {
namespace {

using ::testing::ElementsAre;

TEST(CommBenchJobTest, SizesAreDoubledUpToTheLast) {
  EXPECT_THAT(ListBenchSizes({.min_size = 1000, .max_size = 4100}), ElementsAre(1000, 2000, 4000));
  EXPECT_THAT(ListBenchSizes({.min_size = 8, .max_size = 8}), ElementsAre(8));
  EXPECT_EQ(ListBenchSizes({}).size(), 17U);
}

TEST(CommBenchJobTest, IsReadAsItWasWritten) {
  const CommBenchJob job = {.collectives = {"pt2pt", "all_reduce"},
                            .min_size = 2,
                            .max_size = 70,
                            .warmups = 0,
                            .trials = 3,
                            .dtype = "bfloat16",
                            .device = "cpu",
                            .encrypt = true};
  const auto read = CommBenchJobFromJson(ToJson(job));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, job);
}

TEST(CommBenchJobTest, RefusesInvalidJobs) {
  CommBenchJob job = {.collectives = {"all_reduce"}};
  EXPECT_TRUE(CommBenchJobFromJson(ToJson(job)).ok());
  EXPECT_FALSE(CommBenchJobFromJson("{}").ok());
  EXPECT_FALSE(CommBenchJobFromJson("all_reduce").ok());
  job.collectives = {"gossip"};
  EXPECT_FALSE(CommBenchJobFromJson(ToJson(job)).ok());
  job = {.collectives = {"all_reduce"}, .trials = 0};
  EXPECT_FALSE(CommBenchJobFromJson(ToJson(job)).ok());
}

}  // namespace
}  // namespace ds::config
