// What a rank says of a peer that it loses, or that does not come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

using ::testing::HasSubstr;

// A stream to a host that does not answer; `error`: what reading says.
class SilentStream : public PeerStream {
 public:
  explicit SilentStream(UniqueFd fd, int error = EAGAIN)
      : PeerStream(std::move(fd)), error_(error) {}
  StatusOr<Handshake> Shake() override { return Handshake::kDone; }
  ssize_t Write(std::span<const std::byte> head, std::span<const std::byte> body) override {
    return static_cast<ssize_t>(head.size() + body.size());
  }
  ssize_t Read(std::span<std::byte>) override { return errno = error_, -1; }
  bool HoldsUnread() const override { return false; }
  bool IsSilent(std::chrono::seconds) const override { return error_ == EAGAIN; }

 private:
  const int error_;
};

// Rank 2's messages wake rank 0 all the time.
TEST(PeerLossTest, ASilentPeerIsSeenWhileAnotherOneTalks) {
  auto peers = ConnectPairs(RankLocations({1, 1, 1}));
  int ends[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const UniqueFd other(ends[1]);
  peers[0][1].rails = PeerRails(std::make_unique<SilentStream>(UniqueFd(ends[0])));
  PeerLinks first(std::move(peers[0]), std::chrono::seconds(20), std::chrono::seconds(1));
  PeerLinks third(std::move(peers[2]), std::chrono::minutes(5));
  Absence absence;
  first.ListenForAbsence([&](const Absence& found) { absence = found; });
  std::jthread talker([&] {
    const Frame message{.peer = 0, .channel = FrameChannel::kMessage, .call = CallOf(0)};
    while (third.Wait(third.Send(message, {})).ok()) {
    }
  });
  std::vector<std::byte> bytes(16);
  const Status status = first.Wait(first.Receive({.peer = 1, .call = CallOf(16)}, bytes));
  third.End("rank 0 has seen it");
  EXPECT_EQ(absence.kind, Absence::Kind::kUnreachable);
  EXPECT_EQ(absence.ranks, std::vector{1});
  EXPECT_THAT(status.message(), HasSubstr("rank 1 is on a host that has not answered for 1 s"));
}

// Rank 0 has two rails to rank 1, of which eth0 works and eth1 does what `error` says. What rank 0
// says when it waits for more than eth0 brings.
Status LoseSecondRail(int error) {
  auto peers = ConnectPairs(RankLocations({1, 1}), {.rails = 2});
  auto [here, there] = MakeRails({.rails = 2});
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const UniqueFd other(ends[1]);
  EXPECT_EQ(::write(ends[1], "x", 1), 1);  // poll sees it
  std::vector<PeerRails::Rail> rails(2);
  rails[0] = {MakePlainStream(UniqueFd(::dup(here.all()[0].stream->fd()))), "eth0"};
  rails[1] = {std::make_unique<SilentStream>(UniqueFd(ends[0]), error), "eth1"};
  peers[0][1].rails = PeerRails(std::move(rails));
  PeerLinks links(std::move(peers[0]), std::chrono::minutes(5), std::chrono::seconds(1));
  constexpr std::size_t kBytes = 2 * PeerRails::kStripe;
  const FrameHeader header = {.bytes = kBytes, .call = CallOf(kBytes)};
  std::jthread peer([&] {
    const std::vector<std::byte> bytes(PeerRails::kStripe - sizeof(header));
    std::span<const std::byte> head = std::as_bytes(std::span(&header, 1)), body = bytes;
    while (!body.empty()) {
      const ssize_t sent = there.Write(head, body);
      if (sent < 0) continue;
      const std::size_t of_head = std::min(head.size(), static_cast<std::size_t>(sent));
      head = head.subspan(of_head);
      body = body.subspan(static_cast<std::size_t>(sent) - of_head);
    }
  });
  std::vector<std::byte> bytes(kBytes);
  return links.Wait(links.Receive({.peer = 1, .call = CallOf(kBytes)}, bytes));
}

TEST(PeerLossTest, ARailThatIsLostIsNamed) {
  EXPECT_THAT(LoseSecondRail(ETIMEDOUT).message(),
              HasSubstr("rank 1 is not connected any more over eth1: Connection timed out"));
  EXPECT_THAT(LoseSecondRail(EAGAIN).message(),
              HasSubstr("rank 1 is on a host that has not answered over eth1 for 1 s"));
}

// Rank 2 waits for rank 1, which waits for rank 0, which is busy. Rank 2's time is up first.
TEST(PeerLossTest, AWaitingRankIsNotTheMissingOne) {
  auto peers = ConnectPairs(RankLocations({1, 1, 1}));
  const PeerLinks busy(std::move(peers[0]), std::chrono::minutes(5));
  PeerLinks one(std::move(peers[1]), std::chrono::milliseconds(1500));
  PeerLinks two(std::move(peers[2]), std::chrono::milliseconds(1000));
  Absence found_by_one, found_by_two;
  one.ListenForAbsence([&](const Absence& found) { found_by_one = found; });
  two.ListenForAbsence([&](const Absence& found) { found_by_two = found; });
  const auto wait_for = [](PeerLinks& links, int peer) {
    std::vector<std::byte> bytes(16);
    const auto posted = links.Receive({.peer = peer, .call = CallOf(16)}, bytes);
    const Status status = links.Wait(posted);
    links.End(status.message());
    return status.message();
  };
  std::jthread rank_one(
      [&] { EXPECT_THAT(wait_for(one, 0), HasSubstr("rank 0 did not arrive within 1 s")); });
  EXPECT_THAT(wait_for(two, 1), HasSubstr("rank 0 did not arrive within 1 s"));
  rank_one.join();
  EXPECT_EQ(found_by_one.kind, Absence::Kind::kLate);
  EXPECT_EQ(found_by_one.ranks, std::vector{0});
  EXPECT_EQ(found_by_two.kind, Absence::Kind::kNone);
}

}  // namespace
}  // namespace ds::comm
