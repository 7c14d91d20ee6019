#include "runtime/comm/net/peer_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

using ::testing::HasSubstr;
using ByteArray = std::vector<std::byte>;

ByteArray MakeBytes(std::size_t count, int seed) {
  ByteArray bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

// Rank 0 and rank 1, each on a host of its own.
struct Pair {
  explicit Pair(const Wires& wires, std::chrono::milliseconds timeout = std::chrono::minutes(5)) {
    auto peers = ConnectPairs(RankLocations({1, 1}), wires);
    first = std::make_unique<PeerLinks>(std::move(peers[0]), timeout);
    second = std::make_unique<PeerLinks>(std::move(peers[1]), timeout);
  }
  std::unique_ptr<PeerLinks> first;
  std::unique_ptr<PeerLinks> second;
};

class PeerLinksTest : public ::testing::TestWithParam<Wires> {
 protected:
  static Wires wires() { return GetParam(); }
};

// More than a socket holds: neither end could send first.
TEST_P(PeerLinksTest, BothSendBeforeEitherReceives) {
  Pair pair(wires());
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const auto exchange = [](PeerLinks& links, int peer, int seed) {
    const ByteArray mine = MakeBytes(kBytes, seed);
    ByteArray theirs(kBytes);
    const auto sent = links.Send({.peer = peer, .call = CallOf(kBytes)}, mine);
    const auto received = links.Receive({.peer = peer, .call = CallOf(kBytes)}, theirs);
    EXPECT_TRUE(links.Wait(received).ok());
    EXPECT_TRUE(links.Wait(sent).ok());
    EXPECT_EQ(theirs, MakeBytes(kBytes, 1 - seed));
  };
  std::jthread other([&] { exchange(*pair.second, 0, 1); });
  exchange(*pair.first, 1, 0);
}

// The second message comes while the first is not asked for; the collective behind both passes
// them.
TEST_P(PeerLinksTest, CollectivesPassUnrequestedMessages) {
  Pair pair(wires());
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::jthread other([&] {
    const ByteArray one = MakeBytes(kBytes, 1);
    const ByteArray two = MakeBytes(kBytes, 2);
    const ByteArray three = MakeBytes(kBytes, 3);
    const auto message = [](std::uint64_t count) {
      return Frame{.peer = 0, .channel = FrameChannel::kMessage, .call = CallOf(count)};
    };
    pair.second->Send(message(kBytes), one);
    pair.second->Send(message(kBytes), two);
    const auto last = pair.second->Send({.peer = 0, .call = CallOf(kBytes)}, three);
    EXPECT_TRUE(pair.second->Wait(last).ok());
  });
  ByteArray collective(kBytes);
  const auto posted = pair.first->Receive({.peer = 1, .call = CallOf(kBytes)}, collective);
  ASSERT_TRUE(pair.first->Wait(posted).ok());
  EXPECT_EQ(collective, MakeBytes(kBytes, 3));
  for (const int seed : {1, 2}) {
    ByteArray message(kBytes);
    const auto ticket = pair.first->Receive(
        {.peer = 1, .channel = FrameChannel::kMessage, .call = CallOf(kBytes)}, message);
    ASSERT_TRUE(pair.first->Wait(ticket).ok());
    EXPECT_EQ(message, MakeBytes(kBytes, seed));
  }
}

TEST_P(PeerLinksTest, NamesAnEndedPeer) {
  Pair pair(wires());
  pair.second.reset();
  ByteArray bytes(16);
  const auto ticket = pair.first->Receive({.peer = 1, .call = CallOf(16)}, bytes);
  const Status status = pair.first->Wait(ticket);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 closed its connection"));
  EXPECT_THAT(status.message(), HasSubstr("all-gather of 16 uint8"));
}

TEST_P(PeerLinksTest, DataSentBeforeAPeerEndsArrives) {
  Pair pair(wires());
  const ByteArray mine = MakeBytes(100, 5);
  ASSERT_TRUE(pair.second->Wait(pair.second->Send({.peer = 0, .call = CallOf(100)}, mine)).ok());
  pair.second.reset();
  ByteArray bytes(100);
  ASSERT_TRUE(pair.first->Wait(pair.first->Receive({.peer = 1, .call = CallOf(100)}, bytes)).ok());
  EXPECT_EQ(bytes, mine);
}

TEST_P(PeerLinksTest, NamesAMissingPeer) {
  Pair pair(wires(), std::chrono::milliseconds(20));
  ByteArray bytes(16);
  const Status status =
      pair.first->Wait(pair.first->Receive({.peer = 1, .call = CallOf(16)}, bytes));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 did not arrive within"));
}

// Its memory may be gone when the frame comes.
TEST_P(PeerLinksTest, DoesNotWriteAbandonedReceives) {
  Pair pair(wires());
  ByteArray bytes(16);
  pair.first->Receive({.peer = 1, .call = CallOf(16)}, bytes);
  pair.first->AbandonUnfinished(/*group=*/0);
  const ByteArray mine = MakeBytes(16, 1);
  EXPECT_TRUE(pair.second->Wait(pair.second->Send({.peer = 0, .call = CallOf(16)}, mine)).ok());
  const Status status =
      pair.first->Wait(pair.first->Receive({.peer = 1, .call = CallOf(16)}, bytes));
  EXPECT_THAT(status.message(), HasSubstr("given up a collective"));
  EXPECT_EQ(bytes, ByteArray(16));
}

// As a call does that fails midway: its buffer goes before anybody says why everything ends.
TEST_P(PeerLinksTest, DoesNotReadAbandonedSends) {
  Pair pair(wires());
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  auto mine = std::make_unique<ByteArray>(MakeBytes(kBytes, 1));
  pair.second->Send({.peer = 0, .call = CallOf(kBytes)}, *mine);
  const auto next = pair.second->Send({.peer = 0, .call = CallOf(kBytes)}, *mine);
  pair.second->AbandonUnfinished(/*group=*/0);
  mine->assign(kBytes, std::byte{0});
  mine.reset();
  pair.second->End("rank 1 has given up: no space left");
  ByteArray bytes(kBytes);
  const auto posted = pair.first->Receive({.peer = 1, .call = CallOf(kBytes)}, bytes);
  EXPECT_TRUE(pair.first->Wait(posted).ok());
  EXPECT_EQ(bytes, MakeBytes(kBytes, 1)) << "what was on its way is completed";
  const auto last = pair.first->Receive({.peer = 1, .call = CallOf(kBytes)}, bytes);
  EXPECT_THAT(pair.first->Wait(last).message(), HasSubstr("no space left"));
  EXPECT_FALSE(pair.second->Wait(next).ok()) << "it was never sent";
}

TEST_P(PeerLinksTest, DetectsRanksInDifferentCallsWithoutOverwriting) {
  Pair pair(wires());
  const ByteArray mine = MakeBytes(16, 0);
  CallSignature other = CallOf(16);
  other.kind = CallKind::kBroadcast;
  ASSERT_TRUE(pair.second->Wait(pair.second->Send({.peer = 0, .call = other}, mine)).ok());
  ByteArray bytes(16);
  const Status status =
      pair.first->Wait(pair.first->Receive({.peer = 1, .call = CallOf(16)}, bytes));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 is in broadcast of 16 uint8"));
  EXPECT_EQ(bytes, ByteArray(16));
}

// The first group's frame comes first and is asked for last.
TEST_P(PeerLinksTest, AFrameOfOneGroupDoesNotBlockAnothers) {
  Pair pair(wires());
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::jthread other([&] {
    const ByteArray one = MakeBytes(kBytes, 1);
    const ByteArray two = MakeBytes(kBytes, 2);
    pair.second->Send({.peer = 0, .group = 1, .call = CallOf(kBytes)}, one);
    const auto last = pair.second->Send({.peer = 0, .group = 2, .call = CallOf(kBytes)}, two);
    EXPECT_TRUE(pair.second->Wait(last).ok());
  });
  for (const int group : {2, 1}) {
    ByteArray bytes(kBytes);
    const auto posted = pair.first->Receive(
        {.peer = 1, .group = static_cast<GroupId>(group), .call = CallOf(kBytes)}, bytes);
    ASSERT_TRUE(pair.first->Wait(posted).ok());
    EXPECT_EQ(bytes, MakeBytes(kBytes, group));
  }
}

// A frame is on its way that the peer does not take.
TEST_P(PeerLinksTest, APeerGetsTheReasonAfterAPartialFrame) {
  Pair pair(wires());
  ByteArray mine = MakeBytes(std::size_t{4} << 20, 1);
  pair.second->Send({.peer = 0, .call = CallOf(mine.size())}, mine);
  pair.second->End("rank 1 has given up: no space left");
  mine.assign(mine.size(), std::byte{0});  // is not read any more
  ByteArray bytes(mine.size());
  const auto posted = pair.first->Receive({.peer = 1, .call = CallOf(bytes.size())}, bytes);
  EXPECT_TRUE(pair.first->Wait(posted).ok());
  EXPECT_EQ(bytes, MakeBytes(bytes.size(), 1));
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto next = pair.first->Receive({.peer = 1, .call = CallOf(16)}, bytes);
    const Status status = pair.first->Wait(next);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 has given up: no space left; this rank was in "
                                            "all-gather of 16 uint8"));
  }
}

// Rank 0 is in nothing that this frame is for, and waits for nobody here.
TEST_P(PeerLinksTest, DetectsAPeersEndAfterAnUnrequestedFrame) {
  Pair pair(wires());
  std::promise<std::string> heard;
  pair.first->ListenForEnd([&](const std::string& cause) { heard.set_value(cause); });
  const ByteArray mine = MakeBytes(16, 1);
  ASSERT_TRUE(pair.second->Wait(pair.second->Send({.peer = 0, .call = CallOf(16)}, mine)).ok());
  pair.second->End("rank 1 has given up: no space left");
  std::future<std::string> cause = heard.get_future();
  ASSERT_EQ(cause.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(cause.get(), "rank 1 has given up: no space left");
}

// Writes `header` to rank 0 as rank 1; what rank 0 says when it waits for a call of 16 bytes.
Status SendHeader(const FrameHeader& header, const Wires& wires) {
  auto peers = ConnectPairs(RankLocations({1, 1}), wires);
  PeerLinks links(std::move(peers[0]), std::chrono::minutes(5));
  ByteArray bytes(16);
  const auto posted = links.Receive({.peer = 1, .call = CallOf(16)}, bytes);
  PeerRails& stream = peers[1][0].rails;
  EXPECT_EQ(stream.Write(std::as_bytes(std::span(&header, 1)), {}),
            static_cast<ssize_t>(sizeof(header)));
  const Status status = links.Wait(posted);
  EXPECT_EQ(bytes, ByteArray(16));
  return status;
}

TEST_P(PeerLinksTest, AHeaderThatIsNoneIsAnErrorThatNamesThePeer) {
  const FrameHeader good = {.bytes = 16, .call = CallOf(16)};
  std::vector<FrameHeader> bad(6, good);
  bad[0].channel = static_cast<FrameChannel>(4);
  bad[1].call.kind = static_cast<CallKind>(12);
  bad[2].call.type = static_cast<ElementType>(10);
  bad[3].call.op = static_cast<ReduceOp>(5);
  bad[4].call.root = -2;
  std::memset(static_cast<void*>(&bad[5].call.tag), 'x', sizeof(CallTag));  // it has no end
  for (const FrameHeader& header : bad) {
    const Status status = SendHeader(header, wires());
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 sent an invalid frame"));
  }
}

// The message of which it promises so much does not come.
TEST_P(PeerLinksTest, AHeaderAllocatesNoMemoryBeforeItsData) {
  auto peers = ConnectPairs(RankLocations({1, 1}), wires());
  PeerLinks links(std::move(peers[0]), std::chrono::minutes(5));
  constexpr std::uint64_t kPromised = std::uint64_t{1} << 50;
  const FrameHeader header = {
      .bytes = kPromised, .channel = FrameChannel::kMessage, .call = CallOf(kPromised)};
  peers[1][0].rails.Write(std::as_bytes(std::span(&header, 1)), {});
  peers[1][0].rails = {};
  ByteArray bytes(16);
  const Status status = links.Wait(links.Receive({.peer = 1, .call = CallOf(16)}, bytes));
  EXPECT_THAT(status.message(), HasSubstr("rank 1 closed its connection"));
}

// Small frames are many records, large ones many reads of each: nothing that is decrypted already
// may be forgotten while poll sees nothing.
TEST_P(PeerLinksTest, FramesOfAllSizesArriveInOrder) {
  Pair pair(wires());
  constexpr int kFrames = 300;
  const auto size_of = [](int i) { return static_cast<std::size_t>(i) * i * 7 % 70'001; };
  std::jthread other([&] {
    for (int i = 0; i < kFrames; ++i) {
      const ByteArray mine = MakeBytes(size_of(i), i);
      const auto sent = pair.second->Send({.peer = 0, .call = CallOf(mine.size())}, mine);
      EXPECT_TRUE(pair.second->Wait(sent).ok());
    }
  });
  for (int i = 0; i < kFrames; ++i) {
    ByteArray bytes(size_of(i));
    const auto posted = pair.first->Receive({.peer = 1, .call = CallOf(bytes.size())}, bytes);
    ASSERT_TRUE(pair.first->Wait(posted).ok());
    ASSERT_EQ(bytes, MakeBytes(bytes.size(), i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, PeerLinksTest,
                         ::testing::Values(Wires{}, Wires{.encrypted = true}, Wires{.rails = 3},
                                           Wires{.encrypted = true, .rails = 2}),
                         [](const auto& info) {
                           return (info.param.encrypted ? "encrypted" : "plain") +
                                  std::to_string(info.param.rails);
                         });

}  // namespace
}  // namespace ds::comm
