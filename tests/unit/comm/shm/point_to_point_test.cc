#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/unit/comm/shm/thread_group.h"

namespace ds::comm {
namespace {

using ::testing::HasSubstr;

std::vector<std::int32_t> Message(int from, int to, std::size_t count) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<std::int32_t>(i) * 64 + from * 8 + to;
  }
  return values;
}

Status SendInts(HostGroup& group, const std::vector<std::int32_t>& values, int peer) {
  return group.Send(reinterpret_cast<const std::byte*>(values.data()),
                    {values.size(), ElementType::kInt32}, peer);
}

Status ReceiveInts(HostGroup& group, std::vector<std::int32_t>& values, int peer) {
  return group.Receive(reinterpret_cast<std::byte*>(values.data()),
                       {values.size(), ElementType::kInt32}, peer);
}

TEST(ChannelTest, AllPairsOfManyRanksStayWithinALimit) {
  for (const int size : {2, 32, 64, 256}) {
    HostGroupOptions options;
    options.self.size = size;
    EXPECT_LT(HostGroup::RegionBytes(options), std::size_t{320} << 20) << size;
  }
  EXPECT_EQ(ChannelSlotBytes(32), 65536u);
  EXPECT_EQ(ChannelSlotBytes(kMaxLocalRanks), 1024u);
}

TEST(PointToPointTest, EveryPairInBothDirections) {
  for (const int size : {2, 3, 8, 40}) {
    RunGroup(SmallChunks(size), [](HostGroup& group) {
      for (const std::size_t count : {0, 1, 16384, 16385, 400001}) {
        // Around the ring; rank 0 receives last, so that long messages find a reader.
        const int next = (group.rank() + 1) % group.size();
        const int previous = (group.rank() + group.size() - 1) % group.size();
        std::vector<std::int32_t> received(count);
        if (group.rank() == 0) {
          ASSERT_TRUE(SendInts(group, Message(0, next, count), next).ok());
          ASSERT_TRUE(ReceiveInts(group, received, previous).ok());
        } else {
          ASSERT_TRUE(ReceiveInts(group, received, previous).ok());
          ASSERT_TRUE(SendInts(group, Message(group.rank(), next, count), next).ok());
        }
        EXPECT_EQ(received, Message(previous, group.rank(), count));
      }
    });
  }
}

TEST(PointToPointTest, MessagesKeepTheirOrderAndMixWithCollectives) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    for (std::int32_t i = 0; i < 20; ++i) {
      std::vector<std::int32_t> value = {i};
      if (group.rank() == 0) {
        ASSERT_TRUE(SendInts(group, value, 1).ok());
      } else {
        value[0] = -1;
        ASSERT_TRUE(ReceiveInts(group, value, 0).ok());
        EXPECT_EQ(value[0], i);
      }
      ASSERT_TRUE(group.Barrier().ok());
    }
  });
}

TEST(PointToPointTest, SmallMessagesDoNotWaitForTheReader) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    const int peer = 1 - group.rank();
    std::vector<std::int32_t> received(100);
    ASSERT_TRUE(SendInts(group, Message(group.rank(), peer, 100), peer).ok());
    ASSERT_TRUE(ReceiveInts(group, received, peer).ok());
    EXPECT_EQ(received, Message(peer, group.rank(), 100));
  });
}

TEST(PointToPointTest, AllMaySendLongMessagesBeforeTheyReceive) {
  constexpr std::size_t kCount = 1 << 20;  // sixteen rings
  for (const int size : {2, 3, 4}) {
    HostGroupOptions options = SmallChunks(size);
    options.timeout = std::chrono::seconds(20);
    RunGroup(options, [](HostGroup& group) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        const int next = (group.rank() + 1) % group.size();
        const int previous = (group.rank() + group.size() - 1) % group.size();
        ASSERT_TRUE(SendInts(group, Message(group.rank(), next, kCount), next).ok());
        ASSERT_TRUE(SendInts(group, Message(group.rank(), next, 3), next).ok());
        std::vector<std::int32_t> received(kCount), after(3);
        ASSERT_TRUE(ReceiveInts(group, received, previous).ok());
        ASSERT_TRUE(ReceiveInts(group, after, previous).ok());
        EXPECT_EQ(received, Message(previous, group.rank(), kCount));
        EXPECT_EQ(after, Message(previous, group.rank(), 3));
      }
    });
  }
}

// 0 waits for 1, which waits for 2, which has room at 0 only as far as 0 reads while it waits.
TEST(PointToPointTest, ALongMessageToAWaitingSenderArrives) {
  constexpr std::size_t kCount = 1 << 20;  // sixteen rings
  HostGroupOptions options = SmallChunks(3);
  options.timeout = std::chrono::seconds(20);
  RunGroup(options, [](HostGroup& group) {
    const auto receive = [&](int from) {
      std::vector<std::int32_t> received(kCount);
      ASSERT_TRUE(ReceiveInts(group, received, from).ok());
      EXPECT_EQ(received, Message(from, group.rank(), kCount));
    };
    const auto send = [&](int to) {
      ASSERT_TRUE(SendInts(group, Message(group.rank(), to, kCount), to).ok());
    };
    if (group.rank() == 0) {
      send(1);
      receive(2);
    } else if (group.rank() == 1) {
      receive(2);
      receive(0);
    } else {
      send(0);
      send(1);
    }
  });
}

TEST(PointToPointTest, ADifferentLengthIsNamedAndNothingIsWritten) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    if (group.rank() == 0) {
      ASSERT_TRUE(SendInts(group, Message(0, 1, 7), 1).ok());
      return;
    }
    std::vector<std::int32_t> received(5, -1);
    const Status status = ReceiveInts(group, received, 0);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 is in send of 7 int32 to rank 1"));
    EXPECT_THAT(status.message(), HasSubstr("rank 1 in receive of 5 int32 from rank 0"));
    EXPECT_EQ(received, std::vector<std::int32_t>(5, -1));
  });
}

TEST(PointToPointTest, ASenderThatLeavesIsNamed) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    if (group.rank() == 0) return;
    std::vector<std::int32_t> received(5);
    const Status status = ReceiveInts(group, received, 0);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 left the group"));
  });
}

}  // namespace
}  // namespace ds::comm
