#pragma once

// ConnectPeers: this rank's connections to the ranks of the other hosts.
//
// Each rank listens on the addresses it offers, tells the others of them (meeting_store.h), calls
// every rank of another host with a higher number and is called by those with a lower one. Before
// anything else goes over a connection both ends prove that they have the job's key
// (peer_proof.h); who cannot is hung up on. What follows is neither encrypted nor signed.
//
// A peer whose process ends is seen at once. A peer whose host does not answer is given up after
// kSilence, which is longer than the lease of its daemon: dsrun sees that first and says so.

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/comm/net/ip_addresses.h"
#include "runtime/comm/net/peer_links.h"

namespace ds::comm {

inline constexpr std::chrono::seconds kSilence{60};

// Takes calls on some of this host's addresses, a free port on each.
class PeerListener {
 public:
  static StatusOr<PeerListener> Open(const std::vector<LocalAddress>& addresses);

  struct Endpoint {
    std::string address;
    int port = 0;
  };
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  // Waits for a call. kDeadlineExceeded when none comes.
  StatusOr<UniqueFd> Accept(std::chrono::steady_clock::time_point deadline) const;

 private:
  std::vector<UniqueFd> sockets_;
  std::vector<Endpoint> endpoints_;
};

// Says where a rank is and how the others reach it.
struct PeerRecord {
  int local_rank = 0;
  int local_size = 1;
  std::string host;  // for messages
  std::vector<PeerListener::Endpoint> endpoints;
};
std::string ToJson(const PeerRecord& record);
StatusOr<PeerRecord> PeerRecordFromJson(const std::string& text);

struct ConnectPeersOptions {
  int rank = 0;
  std::string key;
  std::vector<LocalAddress> addresses;  // this host's, to choose among the peers'
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// `records` by rank. kUnavailable, with the rank and what was tried, when one cannot be reached or
// does not call; kUnauthenticated when it has not the job's key.
StatusOr<std::vector<PeerLinks::Peer>> ConnectPeers(const ConnectPeersOptions& options,
                                                    const PeerListener& listener,
                                                    const std::vector<PeerRecord>& records);

}  // namespace ds::comm
