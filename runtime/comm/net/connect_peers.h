#pragma once

// ConnectPeers: this rank's connections to the ranks of the other hosts.
//
// Each rank listens on the addresses it offers, tells the others of them (meeting_store.h), calls
// every rank of another host with a higher number and is called by those with a lower one. Before
// anything else goes over a connection both ends prove that they have the job's key
// (peer_proof.h). All connections are made at the same time, so that nobody who is slow, silent or
// a stranger keeps the others waiting; who proves nothing takes nobody's place and is hung up on.
// What follows is neither encrypted nor signed unless that is asked for (peer_stream.h).
//
// A peer whose process ends is seen at once. A host that does not answer any more is named by dsrun
// when the lease of its daemon is over, and by those who wait for it (peer_silence.h). A peer that
// is late is waited for: what it has not asked for yet stays in the socket.

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
  std::vector<LocalAddress> addresses;  // this host's, to choose among the peers'
  bool encrypt = false;                 // the same on all ranks
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // The longest search for a way to a rank, whose addresses are tried again and again.
  std::chrono::milliseconds reach_timeout = std::chrono::seconds(30);
};

// `records` by rank. kUnavailable, with the rank and what was tried, when one cannot be reached or
// does not call; kUnauthenticated when who answers in its place has not the job's key.
StatusOr<std::vector<PeerLinks::Peer>> ConnectPeers(const ConnectPeersOptions& options,
                                                    const PeerListener& listener,
                                                    const std::vector<PeerRecord>& records);

}  // namespace ds::comm
