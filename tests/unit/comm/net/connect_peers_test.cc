#include "runtime/comm/net/connect_peers.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/comm/net/peer_proof.h"

namespace ds::comm {
namespace {

using ::testing::HasSubstr;

const std::vector<LocalAddress> kLoopback = {
    {.interface = "lo", .text = "127.0.0.1", .prefix = 8, .loopback = true}};

using Connected = StatusOr<std::vector<PeerLinks::Peer>>;

// Ranks, each on a host of its own, that listen and know of each other.
class Ranks {
 public:
  explicit Ranks(int count, const std::vector<LocalAddress>& addresses = kLoopback)
      : addresses_(addresses) {
    for (int rank = 0; rank < count; ++rank) {
      listeners_.push_back(PeerListener::Open(addresses).value());
      records.push_back(
          {.host = "h" + std::to_string(rank), .endpoints = listeners_.back().endpoints()});
    }
  }

  // Connects every rank in a thread of its own, with the key that is for it.
  std::vector<Connected> Connect(const std::vector<std::string>& keys,
                                 std::chrono::milliseconds timeout = std::chrono::minutes(5)) {
    std::vector<std::optional<Connected>> results(listeners_.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < listeners_.size(); ++rank) {
        threads.emplace_back([&, rank] {
          results[rank] = ConnectPeers({.rank = static_cast<int>(rank),
                                        .key = keys[rank],
                                        .addresses = addresses_,
                                        .encrypt = encrypt,
                                        .timeout = timeout},
                                       listeners_[rank], records);
        });
      }
    }
    std::vector<Connected> connected;
    for (auto& result : results) connected.push_back(std::move(*result));
    return connected;
  }

  int port(int rank) const { return records[rank].endpoints[0].port; }
  const PeerListener& listener(int rank) const { return listeners_[rank]; }

  std::vector<PeerRecord> records;
  bool encrypt = false;

 private:
  std::vector<LocalAddress> addresses_;
  std::vector<PeerListener> listeners_;
};

UniqueFd ConnectTo(int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

class ConnectedPeersTest : public ::testing::TestWithParam<bool> {};

TEST_P(ConnectedPeersTest, EveryRankIsConnectedToEveryOther) {
  Ranks ranks(4);
  ranks.encrypt = GetParam();
  std::vector<Connected> connected = ranks.Connect({"key", "key", "key", "key"});
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(connected[rank].ok()) << connected[rank].status().message();
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ((*connected[rank])[peer].rails.all().size(), peer == rank ? 0u : 1u);
    }
  }
  EXPECT_EQ((*connected[0])[3].name, "rank 3 (host h3)");
  // The right one is at the other end.
  PeerLinks three(std::move(*connected[3]), std::chrono::minutes(5));
  PeerLinks one(std::move(*connected[1]), std::chrono::minutes(5));
  const std::array<std::byte, 1> byte{std::byte{42}};
  std::array<std::byte, 1> got{};
  const auto sent = one.Send({.peer = 3}, byte);
  ASSERT_TRUE(three.Wait(three.Receive({.peer = 1}, got)).ok());
  EXPECT_TRUE(one.Wait(sent).ok());
  EXPECT_EQ(got, byte);
}

// The address at this end of a connection.
std::string AddressOf(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ::inet_ntoa(address.sin_addr);
}

TEST_P(ConnectedPeersTest, EveryRailIsAConnectionOnItsOwnNetwork) {
  const std::vector<LocalAddress> rails = {
      {.interface = "lo", .text = "127.0.0.2", .prefix = 8, .loopback = true, .rail = 0},
      {.interface = "lo", .text = "127.0.0.3", .prefix = 8, .loopback = true, .rail = 1}};
  Ranks ranks(3, rails);
  ranks.encrypt = GetParam();
  std::vector<Connected> connected = ranks.Connect({"key", "key", "key"});
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(connected[rank].ok()) << connected[rank].status().message();
    for (int peer = 0; peer < rank; ++peer) {
      const auto& all = (*connected[rank])[peer].rails.all();
      ASSERT_EQ(all.size(), 2u);
      for (int rail : {0, 1}) {
        EXPECT_EQ(AddressOf(all[rail].stream->fd()), rails[rail].text);  // it was called there
        EXPECT_EQ(all[rail].name, "lo");
      }
    }
  }
  PeerLinks two(std::move(*connected[2]), std::chrono::minutes(5));
  PeerLinks zero(std::move(*connected[0]), std::chrono::minutes(5));
  std::vector<std::byte> bytes(5 * PeerRails::kStripe, std::byte{42}), got(bytes.size());
  const auto sent = zero.Send({.peer = 2}, bytes);
  ASSERT_TRUE(two.Wait(two.Receive({.peer = 0}, got)).ok());
  EXPECT_TRUE(zero.Wait(sent).ok());
  EXPECT_EQ(got, bytes);
}

TEST(ConnectPeersTest, HostsWithOtherNumbersOfRailsAreNamed) {
  Ranks ranks(2);
  ranks.records[1].endpoints.push_back({"127.0.0.9", 1, 1});
  const std::vector<Connected> connected = ranks.Connect({"key", "key"});
  EXPECT_EQ(connected[0].status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(connected[0].status().message(),
              HasSubstr("rank 1 (host h1) has been given 2 network interfaces and rank 0 1"));
  EXPECT_THAT(connected[1].status().message(),
              HasSubstr("rank 0 (host h0) has been given 1 network interfaces and rank 1 2"));
}

INSTANTIATE_TEST_SUITE_P(Streams, ConnectedPeersTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "encrypted" : "plain"; });

UniqueFd AwaitCall(const PeerListener& listener) {
  const int socket = listener.sockets()[0].get();
  pollfd ready{socket, POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, -1), 1);
  return UniqueFd(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC));
}

// Reads until the other end hangs up.
void AwaitEnd(const UniqueFd& fd) {
  std::array<std::byte, 256> got;
  while (::recv(fd.get(), got.data(), got.size(), 0) > 0) {
  }
}

TEST(ConnectPeersTest, NamesAPeerWithoutTheKeyOfTheJob) {
  Ranks ranks(2);
  // It listens where rank 1 is expected, and answers.
  std::jthread impostor([&] {
    const UniqueFd caller = AwaitCall(ranks.listener(1));
    const std::array<std::byte, 64> answer{};
    EXPECT_EQ(::send(caller.get(), answer.data(), answer.size(), 0), 64);
    AwaitEnd(caller);
  });
  const Connected result = ConnectPeers({.rank = 0, .key = "key", .addresses = kLoopback},
                                        ranks.listener(0), ranks.records);
  EXPECT_EQ(result.status().code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(result.status().message(), HasSubstr("rank 1 (host h1) cannot be reached"));
  EXPECT_THAT(result.status().message(),
              HasSubstr("the process that answers does not have the key"));
}

// Somebody who scans ports, a crowd that says nothing, and one that claims to be the rank that is
// awaited.
TEST(ConnectPeersTest, StrangersReplaceNoPeer) {
  Ranks ranks(2);
  const UniqueFd scanner = ConnectTo(ranks.port(1));
  const std::string_view request = "GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n";
  EXPECT_EQ(::send(scanner.get(), request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(ConnectTo(ranks.port(1)));
  const UniqueFd impostor = ConnectTo(ranks.port(1));
  std::array<char, 48> greeting{"dsrunln1"};
  greeting[12] = 1;  // from rank 0 to rank 1
  EXPECT_EQ(::send(impostor.get(), greeting.data(), greeting.size(), 0), 48);
  std::array<char, 32> proof{};
  EXPECT_EQ(::send(impostor.get(), proof.data(), proof.size(), 0), 32);
  const std::vector<Connected> connected = ranks.Connect({"key", "key"});
  EXPECT_TRUE(connected[0].ok()) << connected[0].status().message();
  EXPECT_TRUE(connected[1].ok()) << connected[1].status().message();
  AwaitEnd(scanner);
  AwaitEnd(impostor);
}

TEST(ConnectPeersTest, ARankThatDoesNotCallIsNamed) {
  Ranks ranks(2);
  const auto listener = PeerListener::Open(kLoopback);
  const Connected connected =
      ConnectPeers({.rank = 1, .key = "key", .timeout = std::chrono::milliseconds(20)}, *listener,
                   ranks.records);
  EXPECT_EQ(connected.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(connected.status().message(), HasSubstr("rank 0 (host h0) did not connect"));
}

TEST(ConnectPeersTest, NamesAnUnreachableRankWithTheTriedAddresses) {
  Ranks ranks(2);
  ranks.records[1].endpoints = {{.address = "127.0.0.1", .port = 1}};
  const auto listener = PeerListener::Open(kLoopback);
  const Connected connected =
      ConnectPeers({.rank = 0, .key = "key", .reach_timeout = std::chrono::milliseconds(20)},
                   *listener, ranks.records);
  EXPECT_EQ(connected.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(connected.status().message(), HasSubstr("rank 1 (host h1) cannot be reached"));
  EXPECT_THAT(connected.status().message(), HasSubstr("127.0.0.1 port 1: connect"));
  EXPECT_THAT(connected.status().message(), HasSubstr("--interface"));
}

// Addresses of other networks, of networks that are not there yet.
TEST(ConnectPeersTest, FindsARankAfterUnreachableAddresses) {
  Ranks ranks(2);
  auto& endpoints = ranks.records[1].endpoints;
  endpoints.insert(endpoints.begin(),
                   {{.address = "127.0.0.2", .port = 1}, {.address = "127.0.0.3", .port = 2}});
  const std::vector<Connected> connected = ranks.Connect({"key", "key"});
  EXPECT_TRUE(connected[0].ok()) << connected[0].status().message();
  EXPECT_TRUE(connected[1].ok()) << connected[1].status().message();
}

// The network would take a peer that is late, and whose window is full, for one that is gone.
TEST(ConnectPeersTest, ALatePeerIsNotAnEndedOne) {
  Ranks ranks(2);
  const std::vector<Connected> connected = ranks.Connect({"key", "key"});
  ASSERT_TRUE(connected[0].ok()) << connected[0].status().message();
  int timeout = -1;
  socklen_t size = sizeof(timeout);
  const int fd = (*connected[0])[1].rails.read_fd();
  ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &size), 0);
  EXPECT_EQ(timeout, 0);
}

TEST(PeerListenerTest, AnAddressThatCannotBeUsedIsPassedOver) {
  const LocalAddress other = {.interface = "eth0", .text = "192.0.2.1", .prefix = 24};
  const auto listener = PeerListener::Open({other, kLoopback[0]});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  ASSERT_EQ(listener->endpoints().size(), 1u);
  EXPECT_EQ(listener->endpoints()[0].address, "127.0.0.1");
  EXPECT_THAT(PeerListener::Open({other}).status().message(), HasSubstr("listening on 192.0.2.1"));
}

TEST(PeerProofTest, AProofIsForOneKeyOneSideAndOneIntroduction) {
  Introduction introduction{.from = 1, .to = 2};
  introduction.from_nonce.fill(7);
  const Proof proof = MakeProof("key", introduction, /*of_called=*/true);
  EXPECT_TRUE(IsProof("key", introduction, /*of_called=*/true, proof));
  EXPECT_FALSE(IsProof("kez", introduction, /*of_called=*/true, proof));
  EXPECT_FALSE(IsProof("key", introduction, /*of_called=*/false, proof));
  Introduction other = introduction;
  other.to = 3;
  EXPECT_FALSE(IsProof("key", other, /*of_called=*/true, proof));
  other = introduction;
  other.rail = 1;
  EXPECT_FALSE(IsProof("key", other, /*of_called=*/true, proof));
  other = introduction;
  other.to_nonce[31] = 1;
  EXPECT_FALSE(IsProof("key", other, /*of_called=*/true, proof));
}

TEST(PeerRecordTest, ARecordSurvivesTheWayThroughAStore) {
  const PeerRecord record{
      .local_rank = 1, .local_size = 2, .host = "h", .endpoints = {{"fd00::1", 4000, 1}}};
  const auto read = PeerRecordFromJson(ToJson(record));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->local_rank, 1);
  EXPECT_EQ(read->local_size, 2);
  EXPECT_EQ(read->host, "h");
  EXPECT_EQ(read->endpoints[0].address, "fd00::1");
  EXPECT_EQ(read->endpoints[0].port, 4000);
  EXPECT_EQ(read->endpoints[0].rail, 1);
  EXPECT_EQ(read->CountRails(), 2);
  EXPECT_FALSE(PeerRecordFromJson("{}").ok());
}

}  // namespace
}  // namespace ds::comm
