#pragma once

// PortLease: a TCP port kept for the rendezvous of rank 0.
//
// The port stays bound, without listening and with SO_REUSEADDR, for as long as the lease lives.
// So the kernel gives it to nobody who asks for any port, while a server that names it and sets
// SO_REUSEADDR (c10d's TCPStore, gRPC, nearly every server) binds and listens beside the lease:
// there is no moment in which it could be taken. Release() is for ports the user has named, whose
// server may not set SO_REUSEADDR.
//
// Threads: one at a time.

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

class PortLease {
 public:
  // Leases `port` on every address of this host, any free one for 0. kAlreadyExists when it is in
  // use, kPermissionDenied for a port below 1024 without the right to it.
  static StatusOr<PortLease> Take(std::uint16_t port);

  std::uint16_t port() const { return port_; }
  void Release() { socket_.Reset(); }

 private:
  PortLease(UniqueFd socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}

  UniqueFd socket_;
  std::uint16_t port_;
};

}  // namespace ds
