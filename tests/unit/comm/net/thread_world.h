#pragma once

// A WorldGroup per thread: "hosts" whose ranks share private memory, between them socket pairs.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/net/world_group.h"
#include "tests/unit/comm/shm/thread_group.h"

namespace ds::comm {

// Makes both ends of a socket pair ready for frames.
inline std::pair<std::unique_ptr<PeerStream>, std::unique_ptr<PeerStream>> MakeStreams(
    const int (&ends)[2], bool encrypted) {
  if (!encrypted) {
    return {MakePlainStream(UniqueFd(ends[0])), MakePlainStream(UniqueFd(ends[1]))};
  }
  const std::string secret(32, 's');
  auto first = MakeEncryptedStream(UniqueFd(ends[0]), secret, /*calls=*/true);
  auto second = MakeEncryptedStream(UniqueFd(ends[1]), secret, /*calls=*/false);
  int done = 0;
  while (done < 2) {
    done = 0;
    for (PeerStream* stream : {first.get(), second.get()}) {
      done += stream->Shake().value() == PeerStream::Handshake::kDone ? 1 : 0;
    }
  }
  return {std::move(first), std::move(second)};
}

// Makes the signature of an all-gather of bytes.
inline CallSignature CallOf(std::uint64_t count) {
  return {.kind = CallKind::kAllGather, .type = ElementType::kUInt8, .count = count};
}

// Says how two ranks are connected.
struct Wires {
  bool encrypted = false;
  int rails = 1;
};

// Makes both ends of the connections between two ranks.
inline std::pair<PeerRails, PeerRails> MakeRails(const Wires& wires) {
  std::vector<PeerRails::Rail> first, second;
  for (int rail = 0; rail < wires.rails; ++rail) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    // The sockets hold as little as the kernel allows: what fits one hides who waits for whom.
    const int least = 1;
    for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
    auto [of_first, of_second] = MakeStreams(ends, wires.encrypted);
    first.push_back({std::move(of_first), "eth" + std::to_string(rail)});
    second.push_back({std::move(of_second), "eth" + std::to_string(rail)});
  }
  return {PeerRails(std::move(first)), PeerRails(std::move(second))};
}

// Peers of each rank: [rank][peer].
inline std::vector<std::vector<PeerLinks::Peer>> ConnectPairs(const RankLocations& layout,
                                                              const Wires& wires = {}) {
  std::vector<std::vector<PeerLinks::Peer>> peers(static_cast<std::size_t>(layout.size()));
  for (auto& row : peers) row.resize(peers.size());
  for (int a = 0; a < layout.size(); ++a) {
    for (int b = a + 1; b < layout.size(); ++b) {
      if (layout.LocationOf(a).host == layout.LocationOf(b).host) continue;
      auto [of_a, of_b] = MakeRails(wires);
      peers[a][b] = {std::move(of_a), "rank " + std::to_string(b)};
      peers[b][a] = {std::move(of_b), "rank " + std::to_string(a)};
    }
  }
  return peers;
}

// Runs `body` in a thread per rank; small blocks, so that moderate sizes take several.
inline void RunWorld(const std::vector<int>& ranks_on_hosts,
                     const std::function<void(WorldGroup&)>& body) {
  const RankLocations layout(ranks_on_hosts);
  std::vector<std::vector<PeerLinks::Peer>> peers = ConnectPairs(layout);
  std::vector<std::jthread> ranks;
  for (int host = 0; host < layout.hosts(); ++host) {
    HostGroupOptions options = SmallChunks(layout.count_on(host));
    StatusOr<SharedRegion> region = SharedRegion::Private(HostGroup::RegionBytes(options));
    ASSERT_TRUE(region.ok()) << region.status().message();
    const auto shared = std::make_shared<SharedRegion>(std::move(region).value());
    options.meeting = MeetingOf(*shared);
    for (int local = 0; local < layout.count_on(host); ++local) {
      options.names.push_back(layout.first_on(host) + local);
    }
    for (int local = 0; local < layout.count_on(host); ++local) {
      const int rank = layout.first_on(host) + local;
      options.self.rank = local;
      auto links = std::make_unique<PeerLinks>(std::move(peers[rank]), std::chrono::minutes(5));
      ranks.emplace_back(
          [&body, &layout, shared, options, rank, links = std::move(links)]() mutable {
            WorldGroup group(std::make_unique<HostGroup>(shared, options), std::move(links),
                             {.rank = rank, .layout = layout, .block_bytes = 4096});
            body(group);
          });
    }
  }
}

}  // namespace ds::comm
