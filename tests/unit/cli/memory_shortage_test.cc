#include "cli/job/memory_shortage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

JobPlan NeedOf(std::int64_t rank_bytes, Device device = Device::kAuto) {
  JobPlan job;
  job.flags.device = device;
  job.purpose.memory = {.rank_bytes = rank_bytes, .shared_bytes = 1 << 20, .parts = "7 of these"};
  return job;
}

class AdvisingProgram : public Program {
 public:
  StatusOr<RankProgram> ForGeneration(int /*generation*/) const override { return RankProgram(); }
  std::string AdviseOnMemory(std::int64_t rank_bytes) const override {
    return "what fits in " + std::to_string(rank_bytes);
  }
};

v1::PrepareResponse HostWith(std::uint64_t bytes, std::uint32_t gpus = 0) {
  v1::PrepareResponse answer;
  answer.set_available_memory(bytes);
  answer.set_gpu_count(gpus);
  return answer;
}

std::optional<Verdict> FindShortage(const JobPlan& job, const v1::PrepareResponse& answer) {
  return FindMemoryShortage(job, AdvisingProgram(), {.host = "b", .slots = {0, 1}}, answer);
}

TEST(MemoryShortageTest, RanksThatDoNotFitAreRefusedWithWhatWould) {
  const auto shortage = FindShortage(NeedOf(8 << 20), HostWith(12 << 20));
  ASSERT_TRUE(shortage.has_value());
  EXPECT_EQ(shortage->exit_code, 3);
  EXPECT_EQ(shortage->message,
            "host b: its 2 ranks will hold 17.0 MiB, 8.00 MiB each, and 12.0 MiB of memory are "
            "available");
  EXPECT_EQ(shortage->proof, "planned for each rank: 7 of these");
  EXPECT_THAT(shortage->hint, HasSubstr("what fits in 5767168; --allow_overcommit"));
}

TEST(MemoryShortageTest, RanksThatFitAreNot) {
  EXPECT_FALSE(FindShortage(NeedOf(8 << 20), HostWith(17 << 20)).has_value());
}

TEST(MemoryShortageTest, NothingIsJudgedThatIsNotKnown) {
  EXPECT_FALSE(FindShortage(NeedOf(0), HostWith(1)).has_value());
  EXPECT_FALSE(FindShortage(NeedOf(8 << 20), HostWith(0)).has_value());
}

TEST(MemoryShortageTest, RanksOnGpusTakeTheirMemoryThere) {
  EXPECT_FALSE(FindShortage(NeedOf(8 << 20), HostWith(1, /*gpus=*/2)).has_value());
  EXPECT_FALSE(FindShortage(NeedOf(8 << 20, Device::kCuda), HostWith(1)).has_value());
  EXPECT_TRUE(FindShortage(NeedOf(8 << 20, Device::kCpu), HostWith(1, /*gpus=*/2)).has_value());
}

}  // namespace
}  // namespace ds::cli
