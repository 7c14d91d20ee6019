#pragma once

// ProbeTarget checks a daemon's TCP port, independently of gRPC. A refused connection means that
// the host is up and the daemon is not running. Silence means that the network or the host is down.
// An accepted connection means that the host's kernel is up; it says nothing about the daemon.
//
// Thread-safe. Blocks for at most `timeout`.

#include <chrono>
#include <string>

namespace ds::cli {

enum class Reachability {
  kListening,    // the port accepts connections
  kRefused,      // the host responds, but no process listens on the port
  kUnreachable,  // no response or no route
};

struct ProbeResult {
  Reachability reachability = Reachability::kListening;
  std::string detail;  // "10.0.0.2:34567: Connection refused"
};

// `target` is "ipv4:10.0.0.2:34567", "ipv6:[fd00::2]:34567", or the "unix:/path" of a tunnel, which
// accepts connections as long as its SSH connection works.
ProbeResult ProbeTarget(const std::string& target, std::chrono::milliseconds timeout);

}  // namespace ds::cli
