#pragma once

// NetworkHost: the daemon of another host as the controller sees it, over TCP with mutual TLS.
// Whoever started that daemon (SSH) makes one of these with what it printed.
//
// Threads: as HostDaemon says, and Renew, Abandon and Probe from any. Destroying it does not
// end the daemon: a releasing Renew does, or its lease.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "cli/host/daemon_client.h"
#include "cli/host/host_daemon.h"
#include "cli/remote/remote_connection.h"

namespace ds::cli {

class NetworkHost : public HostDaemon {
 public:
  // `target` is as DaemonClient says; `tunnel` what leads there, if not the network.
  NetworkHost(std::string job_id, const std::string& target, const TlsOptions& tls,
              std::unique_ptr<RemoteTunnel> tunnel = nullptr);

  StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request) override;
  std::future<StatusOr<v1::LaunchResponse>> BeginLaunch(const v1::LaunchRequest& request) override;
  StatusOr<v1::StopResponse> Stop(const v1::StopRequest& request) override;
  StatusOr<v1::SignalResponse> Signal(const v1::SignalRequest& request) override;
  StatusOr<v1::InputResponse> Input(const v1::InputRequest& request) override;
  StatusOr<v1::ShareResponse> Share(const v1::ShareRequest& request) override;
  Status Watch(int generation, const EventCallback& on_event) override;
  void Abandon() override { client_.Abandon(); }
  bool leased() const override { return true; }
  void Renew(const RenewCall& call, RenewCallback done) override;
  std::chrono::nanoseconds LastEvent() const override { return last_event_.load(); }
  ProbeResult Probe(std::chrono::milliseconds timeout) const override;

 private:
  const std::string job_id_;
  const std::unique_ptr<RemoteTunnel> tunnel_;  // before the client, which uses it
  DaemonClient client_;
  std::atomic<std::chrono::nanoseconds> last_event_{};
};

}  // namespace ds::cli
