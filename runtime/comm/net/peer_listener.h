#pragma once

// PeerListener: accepts connections from ranks of other hosts. PeerRecord: the addresses that a
// rank publishes so that others can connect to it.

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/comm/net/ip_addresses.h"

namespace ds::comm {

// Listens on some of this host's addresses, on a free port of each.
class PeerListener {
 public:
  // Skips unusable addresses while the rail has another address: an interface may be coming up or
  // going down. With several rails each socket is bound to its interface if the kernel permits it
  // (Linux 5.7); otherwise the host's routes decide.
  static StatusOr<PeerListener> Open(const std::vector<LocalAddress>& addresses);

  struct Endpoint {
    std::string address;
    int port = 0;
    int rail = 0;
  };
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  // Returns listening, non-blocking sockets.
  const std::vector<UniqueFd>& sockets() const { return sockets_; }

 private:
  std::vector<UniqueFd> sockets_;
  std::vector<Endpoint> endpoints_;
};

// Disables delays of small frames on a connected socket.
void PrepareConnection(const UniqueFd& fd);

// Starts a connection to an endpoint. The returned non-blocking socket becomes writable when the
// attempt has succeeded or failed. The socket is bound to `interface`; "": the host's routes
// decide.
StatusOr<UniqueFd> StartDial(const PeerListener::Endpoint& endpoint, const std::string& interface);

// PeerRecord: where a rank is and how other ranks reach it.
struct PeerRecord {
  int local_rank = 0;
  int local_size = 1;
  std::string host;  // for messages
  std::vector<PeerListener::Endpoint> endpoints;

  // Returns the number of rails, at least 1.
  int CountRails() const;
};
std::string ToJson(const PeerRecord& record);

// Checks that all ranks have the same number of rails. Returns kFailedPrecondition that names the
// first rank with another number than `rank`.
Status CheckRails(const std::vector<PeerRecord>& records, int rank);

// Returns the endpoints of a peer's rail in the order in which to try them (OrderAddresses). `mine`
// holds this host's addresses.
std::vector<PeerListener::Endpoint> OrderEndpoints(const std::vector<LocalAddress>& mine,
                                                   const PeerRecord& peer, int rail);

// Parses the output of ToJson.
StatusOr<PeerRecord> PeerRecordFromJson(const std::string& text);

}  // namespace ds::comm
