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
  // Passes over addresses that cannot be used, as long as there is another one of the rail: an
  // interface may just come up, or lose one. Where there are several rails each keeps to its own
  // interface, as far as the kernel lets it (Linux 5.7): else the host's routes decide.
  static StatusOr<PeerListener> Open(const std::vector<LocalAddress>& addresses);

  struct Endpoint {
    std::string address;
    int port = 0;
    int rail = 0;
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
// ended in one way or the other. It keeps to the interface; "": the host's routes decide.
StatusOr<UniqueFd> StartDial(const PeerListener::Endpoint& endpoint, const std::string& interface);

// Says where a rank is and how the others reach it.
struct PeerRecord {
  int local_rank = 0;
  int local_size = 1;
  std::string host;  // for messages
  std::vector<PeerListener::Endpoint> endpoints;

  // At least one.
  int CountRails() const;
};
std::string ToJson(const PeerRecord& record);

// kFailedPrecondition names the first rank that has another number of rails than `rank`.
Status CheckRails(const std::vector<PeerRecord>& records, int rank);

// The endpoints of a peer's rail in the order in which to try them (OrderAddresses). `mine`: this
// host's addresses.
std::vector<PeerListener::Endpoint> OrderEndpoints(const std::vector<LocalAddress>& mine,
                                                   const PeerRecord& peer, int rail);

// Reads ToJson's.
StatusOr<PeerRecord> PeerRecordFromJson(const std::string& text);

}  // namespace ds::comm
