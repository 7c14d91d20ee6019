#pragma once

// RemoteConnection is a logged-in SSH connection that runs commands one after the other, for
// copying and starting a daemon. RemoteTunnel forwards a port of the host through the connection.
//
// Every call blocks until it is done, the deadline passes or the user cancels. A failure reports
// which, names the host, and makes the connection unusable. Destroying a connection ends its local
// processes; processes that a command left running on the host continue.
//
// Not thread-safe. The attempt passed to Open must outlive the connection, but not the tunnel.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "cli/remote/dial.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"

namespace ds::cli {

struct RemoteCommand {
  std::string line;                 // for the user's login shell on the host
  std::string_view input;           // its standard input
  std::string marker;               // a line that the command prints before its output
  bool one_line_is_enough = false;  // returns after the first line of output, without the status

  // Returns true if `out` has all that is needed. A login shell may print text before the marker.
  bool IsEnough(std::string_view out) const {
    const std::size_t at = one_line_is_enough ? out.find(marker) : out.npos;
    return at != out.npos && out.find('\n', at + marker.size()) != out.npos;
  }
};

struct CommandResult {
  int status = -1;  // -1: killed by a signal, or not reported by the server
  std::string out;
  std::string err;
};

class RemoteTunnel {
 public:
  virtual ~RemoteTunnel() = default;
  // Returns the address in gRPC's format: "unix:/tmp/dsrun-job-AbCdEf/tunnel.sock". When SSH
  // breaks, it no longer accepts connections.
  virtual std::string target() const = 0;
};

class RemoteConnection {
 public:
  virtual ~RemoteConnection() = default;

  // Sets the deadline of all later calls, and of the attempt.
  virtual void SetDeadline(Interrupter::Deadline deadline) = 0;
  virtual HostResult<CommandResult> Run(const RemoteCommand& command) = 0;
  // Opens a tunnel to `daemon`, as the host resolves it. Fails as kPort if the host's sshd cannot
  // reach it or forbids forwarding. The tunnel takes over the connection; no other call may follow.
  virtual HostResult<std::unique_ptr<RemoteTunnel>> OpenTunnel(const HostPort& daemon) = 0;

  // Returns the host's address if it was reached directly; "" if through a proxy.
  virtual std::string peer_address() const = 0;
  // Returns a notice for the user; "" = none.
  virtual std::string notice() const = 0;
};

}  // namespace ds::cli
