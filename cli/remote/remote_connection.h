#pragma once

// RemoteConnection: what placing and starting a daemon needs of SSH: a host on which the user is
// logged in, and which runs commands one after the other. RemoteTunnel: a way to a port of that
// host through the connection.
//
// Every call blocks until it is done, the deadline has passed or the user has given up; a failure
// says which, names the place, and leaves the connection without use. The end of a connection ends
// all that it has here; what a command has left running on the host stays.
//
// Threads: one at a time. Lifetimes: the interrupter that it was opened with outlives it, but not
// the tunnel.

#include <memory>
#include <string>
#include <string_view>

#include "cli/remote/dial.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"

namespace ds::cli {

struct RemoteCommand {
  std::string line;                 // for the user's login shell there
  std::string_view input;           // its standard input
  bool one_line_is_enough = false;  // returns when that has been printed, without the status
};

struct CommandResult {
  int status = -1;  // -1: killed by a signal, or the server did not say
  std::string out;
  std::string err;
};

class RemoteTunnel {
 public:
  virtual ~RemoteTunnel() = default;
  // The address as gRPC wants it: "unix:/tmp/dsrun-job-AbCdEf/tunnel.sock". When SSH breaks,
  // nothing takes connections there any more.
  virtual std::string target() const = 0;
};

class RemoteConnection {
 public:
  virtual ~RemoteConnection() = default;

  // Everything from now on must be done by then.
  virtual void SetDeadline(Interrupter::Deadline deadline) = 0;
  virtual HostResult<CommandResult> Run(const RemoteCommand& command) = 0;
  // Leads to what the host calls `daemon`; fails, as kPort, when the host's sshd does not reach it
  // or may not. Takes the connection along: nothing else is asked of it from then on.
  virtual HostResult<std::unique_ptr<RemoteTunnel>> OpenTunnel(const HostPort& daemon) = 0;

  // The host's address when the network alone led there; "" when somebody's help was needed.
  virtual std::string peer_address() const = 0;
  // Returns what the user should hear of; "" when there is nothing.
  virtual std::string notice() const = 0;
};

}  // namespace ds::cli
