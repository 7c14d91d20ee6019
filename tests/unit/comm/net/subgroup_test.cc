// Groups that are made of some ranks of a group, and messages in a ring, on one host and on
// several.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs `body` with ranks that share a host, then with the same number on several.
void RunEverywhere(const std::vector<int>& ranks_on_hosts,
                   const std::function<void(CpuGroup&)>& body) {
  RunGroup(SmallChunks(std::accumulate(ranks_on_hosts.begin(), ranks_on_hosts.end(), 0)), body);
  RunWorld(ranks_on_hosts, body);
}

// Each member adds a bit of its own.
void ExpectSum(CpuGroup& group, int rank, const std::vector<int>& members) {
  std::vector<std::int32_t> data(5000, 1 << rank);
  ASSERT_TRUE(group
                  .AllReduce(reinterpret_cast<std::byte*>(data.data()),
                             {data.size(), ElementType::kInt32}, ReduceOp::kSum)
                  .ok());
  std::int32_t sum = 0;
  for (const int member : members) sum += 1 << member;
  EXPECT_EQ(data, std::vector<std::int32_t>(data.size(), sum));
}

TEST(SubgroupTest, EverySetOfRanksIsAGroup) {
  for (const std::vector<int>& world :
       {std::vector{2, 2}, std::vector{1, 3}, std::vector{2, 1, 1}}) {
    RunEverywhere(world, [](CpuGroup& world) {
      for (int set = 1; set < 16; ++set) {
        std::vector<int> members;
        for (int rank = 0; rank < 4; ++rank) {
          if ((set >> rank & 1) != 0) members.push_back(rank);
        }
        if ((set >> world.rank() & 1) == 0) continue;
        auto group = world.MakeSubgroup("set " + std::to_string(set), members);
        ASSERT_TRUE(group.ok()) << group.status().message();
        EXPECT_EQ((*group)->size(), static_cast<int>(members.size()));
        EXPECT_EQ(members[static_cast<std::size_t>((*group)->rank())], world.rank());
        ExpectSum(**group, world.rank(), members);
      }
      ExpectSum(world, world.rank(), {0, 1, 2, 3});
    });
  }
}

TEST(SubgroupTest, GroupsOfOneNameAndNestedGroupsRunConcurrently) {
  RunEverywhere({2, 2}, [](CpuGroup& world) {
    const int rank = world.rank();
    const std::vector<int> pair = {rank % 2, rank % 2 + 2};
    auto across = world.MakeSubgroup("pair", pair);
    auto all = world.MakeSubgroup("all", {0, 1, 2, 3});
    ASSERT_TRUE(across.ok() && all.ok());
    auto again = (*all)->MakeSubgroup("pair", pair);
    ASSERT_TRUE(again.ok()) << again.status().message();
    for (int repeat = 0; repeat < 3; ++repeat) {
      ExpectSum(**across, rank, pair);
      ExpectSum(**all, rank, {0, 1, 2, 3});
      ExpectSum(**again, rank, pair);
    }
  });
}

TEST(SubgroupTest, ARankThatNamesOtherMembersIsNamed) {
  std::barrier all(3);
  RunEverywhere({2, 1}, [&](CpuGroup& world) {
    if (world.rank() != 1) {
      const auto group =
          world.MakeSubgroup("pair", world.rank() == 0 ? std::vector{0, 2} : std::vector{0, 1, 2});
      EXPECT_FALSE(group.ok());
      if (world.rank() == 0) {  // rank 2 may see no more than that rank 0 refuses
        EXPECT_EQ(group.status().code(), StatusCode::kFailedPrecondition);
        EXPECT_THAT(group.status().message(),
                    AllOf(HasSubstr("rank 2 is in the making of group pair of ranks 0, 1, 2"),
                          HasSubstr("in the making of group pair of ranks 0, 2")));
      }
    }
    all.arrive_and_wait();  // none has left before
  });
}

TEST(SubgroupTest, NamesARankThatLeftBeforeACollective) {
  RunGroup(SmallChunks(3), [](HostGroup& world) {
    if (world.rank() == 1) return;
    const auto group = world.MakeSubgroup("all", {0, 1, 2});
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(group.status().message(), HasSubstr("rank 1 left the group"));
  });
}

// Of what is made from one group all ends with it.
TEST(SubgroupTest, AnAbortEndsAllGroupsOfTheRank) {
  RunEverywhere({2, 2}, [](CpuGroup& world) {
    static std::barrier all(4);
    const int rank = world.rank();
    auto neighbours = world.MakeSubgroup("neighbours", {rank / 2 * 2, rank / 2 * 2 + 1});
    EXPECT_TRUE(neighbours.ok());
    all.arrive_and_wait();
    if (rank == 2) world.Abort("rank 2 has given up: no space left");
    const Status status = rank < 2 ? world.Barrier() : (*neighbours)->Barrier();
    EXPECT_THAT(status.message(), HasSubstr("rank 2 has given up: no space left"));
    all.arrive_and_wait();  // none has left before
  });
}

class SendReceiveTest : public ::testing::TestWithParam<std::vector<int>> {};

std::vector<std::int32_t> Message(int from, std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), from << 24);
  return values;
}

TEST_P(SendReceiveTest, RanksPassLongMessagesRoundARing) {
  RunEverywhere(GetParam(), [](CpuGroup& group) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    for (const std::size_t count : {std::size_t{0}, std::size_t{100}, std::size_t{1} << 21}) {
      const std::vector<std::int32_t> mine = Message(group.rank(), count);
      std::vector<std::int32_t> theirs(count);
      const Elements elements{count, ElementType::kInt32};
      const Status status =
          group.SendReceive({reinterpret_cast<const std::byte*>(mine.data()), elements, next},
                            {reinterpret_cast<std::byte*>(theirs.data()), elements, previous});
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(theirs, Message(previous, count));
    }
  });
}

// What goes one way is longer than what comes, and the ring goes both ways in turn.
TEST_P(SendReceiveTest, MessagesOfDifferentLengthGoInBothDirections) {
  RunEverywhere(GetParam(), [](CpuGroup& group) {
    const auto length = [](int rank) { return std::size_t{300'000} * (1 + rank % 3); };
    for (const int step : {1, group.size() - 1}) {
      const int to = (group.rank() + step) % group.size();
      const int from = (group.rank() + group.size() - step) % group.size();
      const std::vector<std::int32_t> mine = Message(group.rank(), length(group.rank()));
      std::vector<std::int32_t> theirs(length(from));
      const Status status = group.SendReceive(
          {reinterpret_cast<const std::byte*>(mine.data()), {mine.size(), ElementType::kInt32}, to},
          {reinterpret_cast<std::byte*>(theirs.data()),
           {theirs.size(), ElementType::kInt32},
           from});
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(theirs, Message(from, length(from)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Rings, SendReceiveTest,
                         ::testing::Values(std::vector{1, 1}, std::vector{2, 1}, std::vector{2, 2},
                                           std::vector{3, 1, 1}, std::vector{3, 3},
                                           std::vector{4, 1, 2}, std::vector{4, 4}),
                         [](const auto& info) {
                           std::string name;
                           for (const int count : info.param) name += std::to_string(count) + "on";
                           return name + "hosts";
                         });

}  // namespace
}  // namespace ds::comm
