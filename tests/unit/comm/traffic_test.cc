// What communicators count of their calls. Ranks are threads.

#include "runtime/comm/traffic.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <nlohmann/json.hpp>

#include "runtime/comm/host_backend.h"
#include "tests/support/rank_harness.h"
#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

using ds::testing::RunRanks;
using OfKind = Traffic::OfKind;

TEST(TrafficTest, ACallCountsItsFullTensor) {
  RunRanks(2, [](Communicator& comm) {
    const at::Tensor all = at::ones({8});
    const at::Tensor part = at::ones({4});
    comm.AllReduce(all, ReduceOp::kSum);
    comm.AllReduceAsync(all.to(at::kBFloat16), ReduceOp::kSum).wait();
    comm.AllReduceMany({all, part}, ReduceOp::kSum);
    comm.AllGather(all, part);
    comm.ReduceScatterMany({part, part}, {all, all}, ReduceOp::kSum);
    comm.AllToAll(at::empty({8}), all);
    comm.Broadcast(part, 1);
    comm.Gather(comm.rank() == 0 ? std::vector{part, part} : std::vector<at::Tensor>(), part, 0);
    comm.Barrier();
    const Traffic traffic = comm.traffic();
    EXPECT_EQ(traffic.of(TrafficKind::kAllReduce), (OfKind{3, 32 + 16 + 48}));
    EXPECT_EQ(traffic.of(TrafficKind::kAllGather), (OfKind{1, 32}));
    EXPECT_EQ(traffic.of(TrafficKind::kReduceScatter), (OfKind{1, 64}));
    EXPECT_EQ(traffic.of(TrafficKind::kAllToAll), (OfKind{1, 32}));
    EXPECT_EQ(traffic.of(TrafficKind::kBroadcast), (OfKind{1, 16}));
    EXPECT_EQ(traffic.of(TrafficKind::kGather), (OfKind{1, 32}));
    EXPECT_EQ(traffic.of(TrafficKind::kScatter), OfKind());
    EXPECT_FALSE(traffic.between_hosts.has_value());
  });
}

TEST(TrafficTest, MessagesCountOnBothSides) {
  RunRanks(2, [](Communicator& comm) {
    const at::Tensor mine = at::ones({5}, at::kDouble);
    const at::Tensor theirs = at::empty({5}, at::kDouble);
    comm.SendRecv(mine, 1 - comm.rank(), theirs, 1 - comm.rank());
    if (comm.rank() == 0) comm.Send(mine, 1);
    if (comm.rank() == 1) comm.Recv(theirs, 0);
    EXPECT_EQ(comm.traffic().of(TrafficKind::kPointToPoint), (OfKind{3, 120}));
  });
}

TEST(TrafficTest, GroupsOfSomeRanksShareTheirParentsCount) {
  RunRanks(3, [](Communicator& world) {
    const at::Tensor tensor = at::ones({4});
    if (world.rank() > 0) {
      Communicator& pair = world.Group("pair", {1, 2});
      pair.AllReduce(tensor, ReduceOp::kSum);
      pair.Group("one", {pair.rank()}).AllReduce(tensor, ReduceOp::kSum);
    }
    const std::uint64_t calls = world.rank() > 0 ? 2 : 0;
    EXPECT_EQ(world.traffic().of(TrafficKind::kAllReduce), (OfKind{calls, 16 * calls}));
  });
}

TEST(TrafficTest, CountsTrafficBetweenHostsBothWays) {
  RunWorld({1, 1}, [](WorldGroup& world) {
    auto made = world.MakeSubgroup("all", {0, 1});
    ASSERT_TRUE(made.ok());
    Communicator comm(c10::make_intrusive<HostBackend>(std::move(made).value()));
    const Traffic before = comm.traffic();
    comm.AllGather(at::empty({2000}), at::ones({1000}));
    const Traffic step = Since(before, comm.traffic());
    constexpr std::uint64_t kFrame = sizeof(FrameHeader) + 4000;
    EXPECT_EQ(step.between_hosts->sent, kFrame);
    // The header may have come before the call that takes its frame.
    EXPECT_GE(step.between_hosts->received, 4000U);
    EXPECT_LE(step.between_hosts->received, kFrame);
    EXPECT_EQ(step.of(TrafficKind::kAllGather), (OfKind{1, 8000}));
  });
}

// Whatever of two levels is asked for (mics_hierarchical_params_gather): a rank's part goes to the
// other host once, not to each of its ranks.
TEST(TrafficTest, GatheredDataGoesToAnotherHostOnce) {
  std::atomic<std::uint64_t> sent = 0;
  RunWorld({2, 2}, [&](WorldGroup& world) {
    auto made = world.MakeSubgroup("all", {0, 1, 2, 3});
    ASSERT_TRUE(made.ok());
    Communicator comm(c10::make_intrusive<HostBackend>(std::move(made).value()));
    const Traffic before = comm.traffic();
    comm.AllGather(at::empty({4000}), at::ones({1000}));
    sent += Since(before, comm.traffic()).between_hosts->sent;
  });
  constexpr std::uint64_t kParts = 4 * 4000;  // bytes of four ranks, each of which lacks a host
  EXPECT_GE(sent, kParts);
  EXPECT_LT(sent, kParts + 4000);  // and the headers of frames
}

TEST(TrafficTest, EachRankHasItsPartOfTheSharedMemory) {
  std::array<std::size_t, 2> bytes{};
  RunRanks(2, [&](Communicator& world) {
    const std::size_t alone = world.shared_bytes();
    EXPECT_GT(alone, 0U);
    Communicator& all = world.Group("all", {0, 1});
    EXPECT_EQ(world.shared_bytes(), alone + all.shared_bytes());
    bytes[static_cast<std::size_t>(world.rank())] = alone;
  });
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(TrafficTest, JsonHasTheKindsThatWereCalled) {
  TrafficCounters counters;
  counters.Count(TrafficKind::kReduceScatter, 10);
  counters.Count(TrafficKind::kReduceScatter, 20);
  Traffic traffic = counters.Read();
  EXPECT_EQ(ToJson(traffic).dump(), R"({"reduce_scatter":{"calls":2,"bytes":30}})");
  traffic = Since(traffic, counters.Read());
  traffic.between_hosts = BytesBetweenHosts{.sent = 1, .received = 2};
  EXPECT_EQ(ToJson(traffic).dump(), R"({"between_hosts":{"sent":1,"received":2}})");
}

}  // namespace
}  // namespace ds::comm
