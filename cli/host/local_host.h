#pragma once

// LocalHost: the daemon of this machine as the controller sees it.
//
// Threads and lifetimes are LocalDaemon's: destroying it stops its ranks.

#include <memory>
#include <string>

#include "cli/host/host_daemon.h"

namespace ds::cli {

class LocalDaemon;

class LocalHost : public HostDaemon {
 public:
  // Returns when it takes calls.
  static StatusOr<std::unique_ptr<LocalHost>> Start(const std::string& job_id);
  ~LocalHost() override;

  StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request) override;
  std::future<StatusOr<v1::LaunchResponse>> BeginLaunch(const v1::LaunchRequest& request) override;
  StatusOr<v1::StopResponse> Stop(const v1::StopRequest& request) override;
  StatusOr<v1::SignalResponse> Signal(const v1::SignalRequest& request) override;
  StatusOr<v1::InputResponse> Input(const v1::InputRequest& request) override;
  Status Watch(int generation, const EventCallback& on_event) override;
  void HangUp() override;

 private:
  LocalHost(std::string job_id, std::unique_ptr<LocalDaemon> daemon);

  const std::string job_id_;
  const std::unique_ptr<LocalDaemon> daemon_;
};

}  // namespace ds::cli
