#pragma once

// ProbeTarget looks at a daemon's TCP port, independently of what gRPC says: a refused
// connection means that the host is there and the daemon is not; silence means that the network or
// the host is gone; a taken one means that the kernel of the host is well, and says nothing of the
// daemon.
//
// Threads: plain function; waits at most `timeout`.

#include <chrono>
#include <string>

namespace ds::cli {

enum class Reachability {
  kListening,    // the port takes connections
  kRefused,      // the host answers, nobody listens
  kUnreachable,  // no answer, no route
};

struct ProbeResult {
  Reachability reachability = Reachability::kListening;
  std::string detail;  // "10.0.0.2:34567: Connection refused"
};

// `target` is "ipv4:10.0.0.2:34567", "ipv6:[fd00::2]:34567", or the "unix:/path" of a tunnel, which
// takes connections as long as SSH carries them.
ProbeResult ProbeTarget(const std::string& target, std::chrono::milliseconds timeout);

}  // namespace ds::cli
