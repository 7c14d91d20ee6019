#pragma once

// Dial: a TCP connection to a host, or the precise reason why there is none.
//
// Resolving happens on a thread of its own that is left behind when the time is over: the C library
// offers no way to end it. Threads: safe to call concurrently.

#include <cstdint>
#include <string>

#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

struct HostPort {
  std::string host;  // a name or an address
  int port = 0;
};

// Tries the host's addresses in their order. The socket is connected, non-blocking and closed on
// exec.
HostResult<UniqueFd> Dial(const HostPort& target, Interrupter::Deadline deadline,
                          Interrupter* interrupter);

// The address this machine would use towards `address`, a numeric one; "" when there is no way.
std::string LocalAddressTowards(const std::string& address);

// The far end of a connected socket, as a number; "" when it has none.
std::string ReadPeerAddress(int socket);

}  // namespace ds::cli
