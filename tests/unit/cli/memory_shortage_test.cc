#include "cli/job/memory_shortage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

JobPlan NeedOf(std::int64_t rank_bytes, Device device = Device::kAuto) {
  JobPlan job;
  job.flags.device = device;
  job.purpose.memory = {
      .rank_bytes = rank_bytes,
      .shared_bytes = 1 << 20,
      .parts = "7 of these",
      .advise = [](std::int64_t bytes) { return "what fits in " + std::to_string(bytes); }};
  return job;
}

v1::PrepareResponse HostWith(std::uint64_t bytes, std::uint32_t gpus = 0) {
  v1::PrepareResponse answer;
  answer.set_available_memory(bytes);
  answer.set_gpu_count(gpus);
  return answer;
}

const JobHost kHost{.host = "b", .slots = {0, 1}};

TEST(MemoryShortageTest, RanksThatDoNotFitAreRefusedWithWhatWould) {
  const auto shortage = FindMemoryShortage(NeedOf(8 << 20), kHost, HostWith(12 << 20));
  ASSERT_TRUE(shortage.has_value());
  EXPECT_EQ(shortage->exit_code, 3);
  EXPECT_EQ(shortage->message,
            "host b: its 2 ranks will hold 17.0 MiB, 8.00 MiB each, and 12.0 MiB of memory are "
            "available");
  EXPECT_EQ(shortage->proof, "planned for each rank: 7 of these");
  EXPECT_THAT(shortage->hint, HasSubstr("what fits in 5767168; --allow_overcommit"));
}

TEST(MemoryShortageTest, RanksThatFitAreNot) {
  EXPECT_FALSE(FindMemoryShortage(NeedOf(8 << 20), kHost, HostWith(17 << 20)).has_value());
}

TEST(MemoryShortageTest, NothingIsJudgedThatIsNotKnown) {
  EXPECT_FALSE(FindMemoryShortage(NeedOf(0), kHost, HostWith(1)).has_value());
  EXPECT_FALSE(FindMemoryShortage(NeedOf(8 << 20), kHost, HostWith(0)).has_value());
}

TEST(MemoryShortageTest, RanksOnGpusTakeTheirMemoryThere) {
  EXPECT_FALSE(FindMemoryShortage(NeedOf(8 << 20), kHost, HostWith(1, /*gpus=*/2)).has_value());
  EXPECT_FALSE(FindMemoryShortage(NeedOf(8 << 20, Device::kCuda), kHost, HostWith(1)).has_value());
  EXPECT_TRUE(FindMemoryShortage(NeedOf(8 << 20, Device::kCpu), kHost, HostWith(1, /*gpus=*/2))
                  .has_value());
}

}  // namespace
}  // namespace ds::cli
