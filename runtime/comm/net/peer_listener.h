#pragma once

// PeerListener: where ranks of other hosts call this one. PeerRecord: what a rank tells the others
// of itself, so that they can.

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/comm/net/ip_addresses.h"

namespace ds::comm {

// Takes calls on some of this host's addresses, a free port on each.
class PeerListener {
 public:
  // Passes over addresses that cannot be used, as long as there is another one: an interface may
  // just come up, or lose one.
  static StatusOr<PeerListener> Open(const std::vector<LocalAddress>& addresses);

  struct Endpoint {
    std::string address;
    int port = 0;
  };
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  // They listen and do not block.
  const std::vector<UniqueFd>& sockets() const { return sockets_; }

 private:
  std::vector<UniqueFd> sockets_;
  std::vector<Endpoint> endpoints_;
};

// Small frames go at once.
void PrepareConnection(const UniqueFd& fd);

// Begins to connect to an endpoint; the socket, which does not block, is writable when that has
// ended in one way or the other.
StatusOr<UniqueFd> StartDial(const PeerListener::Endpoint& endpoint);

// Says where a rank is and how the others reach it.
struct PeerRecord {
  int local_rank = 0;
  int local_size = 1;
  std::string host;  // for messages
  std::vector<PeerListener::Endpoint> endpoints;
};
std::string ToJson(const PeerRecord& record);
StatusOr<PeerRecord> PeerRecordFromJson(const std::string& text);

}  // namespace ds::comm
