#pragma once

// ConnectPeers: connects this rank to the ranks of the other hosts.
//
// Each rank listens on the addresses it offers and publishes them (meeting_store.h). It connects to
// every rank of another host with a higher number and accepts connections of those with a lower
// number. Before any other data both ends prove that they have the job's key (peer_proof.h). All
// connections are made in parallel, so a slow, silent or foreign peer does not delay the others. A
// peer without proof takes no rank's place and is disconnected. Later data is neither encrypted nor
// signed unless `encrypt` is set (peer_stream.h).
//
// The end of a peer's process is seen at once. A host that no longer answers is reported by dsrun
// when the lease of its daemon expires, and by ranks that wait for it (peer_silence.h). Ranks wait
// for a late peer: data it has not requested yet stays in the socket.

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/net/ip_addresses.h"
#include "runtime/comm/net/peer_links.h"
#include "runtime/comm/net/peer_listener.h"

namespace ds::comm {

struct ConnectPeersOptions {
  int rank = 0;
  std::string key;
  std::vector<LocalAddress> addresses;  // this host's addresses, used to order the peers' addresses
  bool encrypt = false;                 // the same on all ranks
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Timeout for reaching a rank, whose addresses are tried repeatedly.
  std::chrono::milliseconds reach_timeout = std::chrono::seconds(30);
};

// Connects to the peers of `records`, which are indexed by rank. Returns kUnavailable, with the
// rank and the attempts, if a rank cannot be reached or does not connect. Returns kUnauthenticated
// if the answering process does not have the job's key.
StatusOr<std::vector<PeerLinks::Peer>> ConnectPeers(const ConnectPeersOptions& options,
                                                    const PeerListener& listener,
                                                    const std::vector<PeerRecord>& records);

}  // namespace ds::comm
