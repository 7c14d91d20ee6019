// What only ranks on several hosts have: the bytes between hosts, messages, disagreements.

#include "runtime/comm/net/world_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

using ::testing::HasSubstr;

std::byte* BytesOf(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

constexpr std::size_t kCount = 1 << 16;
constexpr std::size_t kBytes = kCount * sizeof(float);

// All ranks of a host together send no more than one rank alone would.
TEST(WorldGroupTest, AnAllReduceMovesTheDataOnceInEachDirectionHoweverManyRanksAHostHas) {
  for (const std::vector<int>& world : {std::vector{1, 1}, std::vector{2, 2}, std::vector{3, 3}}) {
    std::vector<std::uint64_t> sent(static_cast<std::size_t>(2 * world[0]));
    RunWorld(world, [&](WorldGroup& group) {
      std::vector<float> data(kCount, 1);
      ASSERT_TRUE(
          group.AllReduce(BytesOf(data), {kCount, ElementType::kFloat32}, ReduceOp::kSum).ok());
      sent[group.rank()] = group.links().bytes().sent;
    });
    for (const int host : {0, 1}) {
      double bytes = 0;
      for (int local = 0; local < world[0]; ++local) bytes += sent[host * world[0] + local];
      EXPECT_NEAR(bytes, kBytes, 0.03 * kBytes) << world[0] << " ranks on each host";
    }
  }
}

// Where each rank is a host of its own, the first sends as much as two ranks of a host do together.
TEST(WorldGroupTest, RanksOfAHostShareTheTrafficOfOneRank) {
  const auto bytes_of_first_rank = [](const std::vector<int>& world) {
    std::vector<std::uint64_t> sent(4);
    RunWorld(world, [&](WorldGroup& group) {
      std::vector<float> data(kCount, 1);
      ASSERT_TRUE(
          group.AllReduce(BytesOf(data), {kCount, ElementType::kFloat32}, ReduceOp::kSum).ok());
      sent[group.rank()] = group.links().bytes().sent;
    });
    return static_cast<double>(sent[0]);
  };
  const double flat = bytes_of_first_rank({1, 1, 1, 1});
  EXPECT_NEAR(bytes_of_first_rank({2, 2}), flat / 2, 0.03 * flat);
}

TEST(WorldGroupTest, AnAllGatherSendsEachHostItsMissingDataOnce) {
  std::vector<std::uint64_t> sent(4);
  RunWorld({2, 2}, [&](WorldGroup& group) {
    std::vector<float> all(4 * kCount);
    std::vector<std::byte*> parts;
    for (int rank = 0; rank < 4; ++rank) parts.push_back(BytesOf(all) + rank * kCount * 4);
    ASSERT_TRUE(group.AllGather(parts, parts[group.rank()], {kCount, ElementType::kFloat32}).ok());
    sent[group.rank()] = group.links().bytes().sent;
  });
  for (const std::uint64_t bytes : sent) EXPECT_NEAR(bytes, kBytes, 0.03 * kBytes);
}

TEST(WorldGroupTest, RanksOfAllHostsSendToEachOtherFirst) {
  RunWorld({2, 1}, [](WorldGroup& group) {
    constexpr std::size_t kEach = 40000;
    for (int i = 1; i < group.size(); ++i) {
      const int peer = (group.rank() + i) % group.size();
      const std::vector<int> mine(kEach, group.rank() * 10 + peer);
      ASSERT_TRUE(group
                      .Send(reinterpret_cast<const std::byte*>(mine.data()),
                            {kEach, ElementType::kInt32}, peer)
                      .ok());
    }
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      std::vector<int> theirs(kEach);
      ASSERT_TRUE(group
                      .Receive(reinterpret_cast<std::byte*>(theirs.data()),
                               {kEach, ElementType::kInt32}, peer)
                      .ok());
      EXPECT_EQ(theirs, std::vector<int>(kEach, peer * 10 + group.rank()));
    }
  });
}

TEST(WorldGroupTest, TagsThatDifferAreAnErrorThatNamesBoth) {
  RunWorld({1, 1}, [](WorldGroup& group) {
    std::vector<float> data(8, 1);
    group.TagNextCall(CallTag(group.rank() == 0 ? "layer.0" : "layer.1"));
    const Status status =
        group.AllReduce(BytesOf(data), {8, ElementType::kFloat32}, ReduceOp::kSum);
    // Rank 0 may only see that rank 1 has gone over it.
    if (group.rank() == 0) return;
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(),
                HasSubstr("rank 0 is in all-reduce of 8 float32 (sum) for layer.0"));
    EXPECT_THAT(status.message(),
                HasSubstr("this rank in all-reduce of 8 float32 (sum) for layer.1"));
  });
}

// Rank 0 gives its sums and takes no result. Rank 1 sends them from memory of the call's own, which
// is gone when it says why it ends.
TEST(WorldGroupTest, AReduceThatFailsMidwaySendsNothingFromMemoryThatIsGone) {
  const RankLocations layout({1, 1});
  auto peers = ConnectPairs(layout);
  PeerLinks first(std::move(peers[0]), std::chrono::minutes(5));
  HostGroupOptions options = SmallChunks(1);
  options.names = {1};
  auto region = SharedRegion::Private(HostGroup::RegionBytes(options));
  ASSERT_TRUE(region.ok());
  WorldGroup group(
      std::make_unique<HostGroup>(std::make_shared<SharedRegion>(std::move(*region)), options),
      std::make_shared<PeerLinks>(std::move(peers[1]), std::chrono::milliseconds(50)),
      {.rank = 1, .layout = layout, .block_bytes = kBytes / 4});
  const CallSignature call = {.kind = CallKind::kReduce,
                              .type = ElementType::kFloat32,
                              .op = ReduceOp::kSum,
                              .root = 0,
                              .count = kCount};
  std::vector<float> data(kCount, 1);
  const auto sums = std::as_bytes(std::span(data));
  for (int block = 0; block < 4; ++block) {
    first.Send({.peer = 1, .call = call}, sums.subspan(block * sums.size() / 4, sums.size() / 4));
  }
  std::vector<float> mine(kCount, 2);
  const Status status =
      group.Reduce(BytesOf(mine), {kCount, ElementType::kFloat32}, ReduceOp::kSum, 0);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 did not arrive"));
  group.Abort("rank 1 has given up");
  std::vector<float> result(kCount / 4);
  const auto into = std::as_writable_bytes(std::span(result));
  EXPECT_TRUE(first.Wait(first.Receive({.peer = 1, .call = call}, into)).ok());
  EXPECT_EQ(result, std::vector<float>(kCount / 4, 3)) << "the block that was on its way";
  const Status later = first.Wait(first.Receive({.peer = 1, .call = call}, into));
  EXPECT_THAT(later.message(), HasSubstr("rank 1 has given up"));
}

// Rank 3 ends what ranks 0, 1 and 2 wait in: for the other host, for their own, for a message.
TEST(WorldGroupTest, AnAbortEndsPendingAndLaterCallsOnAllHosts) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::barrier all(4);
    RunWorld({2, 2}, [&](WorldGroup& group) {
      std::vector<float> data(kCount, 1);
      const Elements elements{kCount, ElementType::kFloat32};
      const auto call = [&]() -> Status {
        if (group.rank() == 2) return group.Receive(BytesOf(data), elements, 3);
        return group.AllReduce(BytesOf(data), elements, ReduceOp::kSum);
      };
      if (group.rank() == 3) group.Abort("rank 3 has given up: no space left");
      for (int later = 0; later < 2; ++later) {
        const Status status = call();
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(status.message(), HasSubstr("rank 3 has given up: no space left"));
        group.Abort(status.message());  // as CallQueue does
      }
      all.arrive_and_wait();  // none has left before
    });
  }
}

}  // namespace
}  // namespace ds::comm
