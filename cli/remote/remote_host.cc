#include "cli/remote/remote_host.h"

#include <future>

namespace ds::cli {
namespace {

// How long saying goodbye may take; the lease does the rest.
constexpr std::chrono::seconds kReleaseTimeout{2};

}  // namespace

std::string GrpcTarget(const std::string& address, int port) {
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "ipv6:[" + address + "]:" : "ipv4:" + address + ":") + std::to_string(port);
}

RemoteHost::RemoteHost(const std::string& job_id, const StartedDaemon& daemon,
                       const TlsOptions& tls)
    : NetworkHost(job_id, GrpcTarget(daemon.address, daemon.port), tls) {}

RemoteHost::~RemoteHost() {
  std::promise<void> answered;
  NetworkHost::Renew({.release = true, .timeout = kReleaseTimeout},
                     [&](const StatusOr<v1::RenewResponse>&) { answered.set_value(); });
  answered.get_future().wait();
}

}  // namespace ds::cli
