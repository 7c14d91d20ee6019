#pragma once

// Dial opens a TCP connection to a host, or returns the precise reason for the failure.
//
// A separate thread resolves the name. It is abandoned at the deadline, because the C library
// cannot cancel a resolution. Thread-safe.

#include <cstdint>
#include <string>

#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

inline constexpr int kSshPort = 22;  // unless the configuration or the hostfile names another

struct HostPort {
  std::string host;  // a name or an address
  int port = 0;
};

// Tries the host's addresses in order. The socket is connected, non-blocking and closed on exec.
HostResult<UniqueFd> Dial(const HostPort& target, Interrupter::Deadline deadline,
                          Interrupter* interrupter);

// Returns this machine's source address for `address`, a numeric one; "" if there is no route.
std::string LocalAddressTowards(const std::string& address);

// Returns the numeric peer address of a connected socket; "" if it has none.
std::string ReadPeerAddress(int socket);

}  // namespace ds::cli
