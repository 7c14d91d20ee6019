#include "runtime/comm/net/peer_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

// Two ends and what may stand between them.
struct Pipe {
  Pipe() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  }
  int ends[2] = {-1, -1};
};

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(PeerStreamTest, EncryptsAllPayload) {
  Pipe pipe;
  auto [first, second] = MakeStreams(pipe.ends, /*encrypted=*/true);
  const std::string text(1000, 'x');
  ASSERT_EQ(first->Write(BytesOf("head"), BytesOf(text)), 1004);
  std::array<std::byte, 4096> wire;
  const ssize_t seen = ::recv(second->fd(), wire.data(), wire.size(), MSG_PEEK);
  ASSERT_GT(seen, 1004);
  const auto run = std::search_n(wire.begin(), wire.begin() + seen, 8, std::byte{'x'});
  EXPECT_EQ(run, wire.begin() + seen);
  std::array<std::byte, 1004> got{};
  EXPECT_EQ(second->Read(got), 1004);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), got.begin() + 4,
                         [](char a, std::byte b) { return static_cast<std::byte>(a) == b; }));
}

TEST(PeerStreamTest, ABitThatWasChangedOnTheWayIsNoticed) {
  Pipe pipe;
  auto [first, second] = MakeStreams(pipe.ends, /*encrypted=*/true);
  ASSERT_EQ(first->Write({}, BytesOf("payload")), 7);
  std::array<std::byte, 256> wire;
  const ssize_t seen = ::recv(second->fd(), wire.data(), wire.size(), 0);
  ASSERT_GT(seen, 7);
  wire[static_cast<std::size_t>(seen) - 1] ^= std::byte{1};
  // It goes round by the first one's socket to where the second one reads.
  ASSERT_EQ(::send(first->fd(), wire.data(), static_cast<std::size_t>(seen), 0), seen);
  std::array<std::byte, 16> got;
  EXPECT_EQ(second->Read(got), -1);
  EXPECT_EQ(errno, EBADMSG);
}

TEST(PeerStreamTest, RefusesPeersWithAnotherSecret) {
  Pipe pipe;
  const auto first = MakeEncryptedStream(UniqueFd(pipe.ends[0]), std::string(32, 'a'), true);
  const auto second = MakeEncryptedStream(UniqueFd(pipe.ends[1]), std::string(32, 'b'), false);
  ASSERT_EQ(first->Shake().value(), PeerStream::Handshake::kReadable);
  EXPECT_FALSE(second->Shake().ok());
}

TEST(PeerStreamTest, AnEndThatIsGoneIsTheEndOfTheBytes) {
  for (const bool encrypted : {false, true}) {
    Pipe pipe;
    auto [first, second] = MakeStreams(pipe.ends, encrypted);
    std::array<std::byte, 16> got;
    EXPECT_EQ(second->Read(got), -1);
    EXPECT_EQ(errno, EAGAIN);
    first.reset();
    EXPECT_EQ(second->Read(got), 0);
    EXPECT_EQ(second->Write(BytesOf("to nobody"), {}), -1);
    EXPECT_EQ(errno, EPIPE);
  }
}

}  // namespace
}  // namespace ds::comm
