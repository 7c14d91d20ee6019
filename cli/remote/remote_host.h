#pragma once

// RemoteHost: a daemon that was started on another machine, until it is not needed any more.
//
// Destroying it tells the daemon so, which then stops its ranks and ends; one that does not hear it ends
// with its lease. Threads: NetworkHost's.

#include <string>

#include "cli/job/network_host.h"
#include "cli/remote/remote_daemon.h"

namespace ds::cli {

class RemoteHost : public NetworkHost {
 public:
  RemoteHost(const std::string& job_id, const StartedDaemon& daemon, const TlsOptions& tls);
  ~RemoteHost() override;
};

// "ipv4:10.0.0.2:34567" or "ipv6:[fd00::2]:34567", as gRPC wants it.
std::string GrpcTarget(const std::string& address, int port);

}  // namespace ds::cli
