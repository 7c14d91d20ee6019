#pragma once

// PortLease reserves a TCP port for the rendezvous of rank 0.
//
// The port stays bound with SO_REUSEADDR, without listening, for the lifetime of the lease. The
// kernel then never hands it out as a free port. A server that names the port and sets SO_REUSEADDR
// (c10d's TCPStore, gRPC, nearly every server) can bind and listen during the lease, so no other
// process can take the port in between. Call Release() for a port named by the user, because its
// server may not set SO_REUSEADDR.
//
// Not thread-safe.

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

class PortLease {
 public:
  // Leases `port` on every address of this host; 0 picks any free port. Fails with kAlreadyExists
  // when it is in use, and with kPermissionDenied for a port below 1024 without the privilege.
  static StatusOr<PortLease> Take(std::uint16_t port);

  std::uint16_t port() const { return port_; }
  void Release() { socket_.Reset(); }

 private:
  PortLease(UniqueFd socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}

  UniqueFd socket_;
  std::uint16_t port_;
};

}  // namespace ds
