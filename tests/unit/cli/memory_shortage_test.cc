#include "cli/job/memory_shortage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

JobPlan NeedOf(std::int64_t rank_bytes, Device device = Device::kAuto) {
  JobPlan job;
  job.flags.device = device;
  job.purpose.memory = {.on_cpu = {.bytes = rank_bytes, .parts = "7 of these"},
                        .on_gpu = {.bytes = rank_bytes / 4, .parts = "offloaded state"},
                        .shared_bytes = 1 << 20};
  return job;
}

class AdvisingProgram : public Program {
 public:
  StatusOr<RankProgram> ForGeneration(int /*generation*/) const override { return RankProgram(); }
  std::string AdviseOnMemory(std::int64_t rank_bytes, bool on_gpus) const override {
    return "what fits in " + std::to_string(rank_bytes) + (on_gpus ? " on GPUs" : "");
  }
};

v1::PrepareResponse HostWith(std::uint64_t bytes, bool on_gpus = false) {
  v1::PrepareResponse answer;
  answer.set_available_memory(bytes);
  answer.set_ranks_on_gpus(on_gpus);
  return answer;
}

const JobHost kHost{.host = "b", .slots = {0, 1}};

JobOutcome CheckNeed(const JobPlan& job, const v1::PrepareResponse& answer) {
  return CheckHostMemory({job, AdvisingProgram(), kHost, answer});
}

TEST(MemoryShortageTest, RefusesRanksThatDoNotFitWithASuggestion) {
  const JobOutcome fits = CheckNeed(NeedOf(8 << 20), HostWith(12 << 20));
  ASSERT_FALSE(fits.ok());
  EXPECT_EQ(fits.failure().exit_code, 3);
  EXPECT_EQ(fits.failure().message,
            "host b: its 2 ranks will hold 17.0 MiB, 8.00 MiB each, and 12.0 MiB of memory are "
            "available");
  EXPECT_EQ(fits.failure().proof, "planned for each rank: 7 of these");
  EXPECT_THAT(fits.failure().hint, HasSubstr("what fits in 5767168\n--allow_overcommit"));
}

TEST(MemoryShortageTest, RanksThatFitAreNot) {
  EXPECT_TRUE(CheckNeed(NeedOf(8 << 20), HostWith(17 << 20)).ok());
}

TEST(MemoryShortageTest, NothingIsJudgedThatIsNotKnown) {
  EXPECT_TRUE(CheckNeed(NeedOf(0), HostWith(1)).ok());
  EXPECT_TRUE(CheckNeed(NeedOf(8 << 20), HostWith(0)).ok());
}

TEST(MemoryShortageTest, RanksOnGpusUseHostMemoryForOffload) {
  constexpr std::uint64_t kCapacity = 6 << 20;  // for two of 2 MiB and what they share
  EXPECT_TRUE(CheckNeed(NeedOf(8 << 20), HostWith(kCapacity, true)).ok());
  EXPECT_TRUE(CheckNeed(NeedOf(8 << 20, Device::kCuda), HostWith(kCapacity)).ok());
  const JobOutcome fits = CheckNeed(NeedOf(8 << 20), HostWith(4 << 20, true));
  ASSERT_FALSE(fits.ok());
  EXPECT_EQ(fits.failure().proof, "planned for each rank: offloaded state");
  EXPECT_THAT(fits.failure().hint, HasSubstr("on GPUs\n--allow_overcommit"));
  EXPECT_FALSE(CheckNeed(NeedOf(8 << 20, Device::kCpu), HostWith(kCapacity, true)).ok());
}

class NodeShortageTest : public ::testing::Test {
 protected:
  // Of two nodes; rank i is bound to the memory of node nodes[i].
  static JobPlan BoundTo(const std::vector<int>& nodes) {
    JobPlan job = NeedOf(8 << 20);
    for (const int node : nodes) {
      job.world.ranks.push_back({.memory = {.kind = MemoryPolicy::Kind::kBind, .nodes = {node}}});
    }
    return job;
  }
  static v1::PrepareResponse HostOfNodes(std::uint64_t first, std::uint64_t second) {
    v1::PrepareResponse answer = HostWith(100 << 20);
    for (const std::uint64_t bytes : {first, second}) {
      v1::NumaNode* const node = answer.add_numa_nodes();
      node->set_id(static_cast<std::uint32_t>(answer.numa_nodes_size() - 1));
      node->set_memory_bytes(bytes);
    }
    return answer;
  }
  static JobOutcome CheckNodes(const JobPlan& job, const v1::PrepareResponse& answer) {
    return CheckNodeMemory({job, AdvisingProgram(), kHost, answer});
  }
};

TEST_F(NodeShortageTest, RanksBoundToANodeHaveNoMoreThanItHas) {
  const v1::PrepareResponse answer = HostOfNodes(12 << 20, 40 << 20);
  EXPECT_TRUE(CheckNodes(BoundTo({0, 1}), answer).ok());
  EXPECT_TRUE(CheckNodes(BoundTo({1, 1}), answer).ok());
  const JobOutcome fits = CheckNodes(BoundTo({0, 0}), answer);
  ASSERT_FALSE(fits.ok());
  EXPECT_EQ(fits.failure().message,
            "host b: its 2 ranks on NUMA node 0 will hold 16.0 MiB, 8.00 MiB each, and 12.0 MiB of "
            "memory are there");
}

TEST_F(NodeShortageTest, UnboundRanksHaveAllNodes) {
  JobPlan job = BoundTo({0, 0});
  for (PlannedRank& rank : job.world.ranks) rank.memory = {};
  EXPECT_TRUE(CheckNodes(job, HostOfNodes(1, 1)).ok());
}

}  // namespace
}  // namespace ds::cli
