#include "cli/host/local_host.h"

#include <utility>

#include "cli/host/local_daemon.h"

namespace ds::cli {

StatusOr<std::unique_ptr<LocalHost>> LocalHost::Start(const std::string& job_id) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<LocalDaemon> daemon, LocalDaemon::Start({.job_id = job_id}));
  return std::unique_ptr<LocalHost>(new LocalHost(job_id, std::move(daemon)));
}

LocalHost::LocalHost(std::string job_id, std::unique_ptr<LocalDaemon> daemon)
    : job_id_(std::move(job_id)), daemon_(std::move(daemon)) {}

LocalHost::~LocalHost() = default;

StatusOr<v1::PrepareResponse> LocalHost::Prepare(const v1::PrepareRequest& request) {
  return daemon_->client().Prepare(request);
}

std::future<StatusOr<v1::LaunchResponse>> LocalHost::BeginLaunch(const v1::LaunchRequest& request) {
  return daemon_->client().BeginLaunch(request);
}

StatusOr<v1::StopResponse> LocalHost::Stop(const v1::StopRequest& request) {
  return daemon_->client().Stop(request);
}

StatusOr<v1::SignalResponse> LocalHost::Signal(const v1::SignalRequest& request) {
  return daemon_->client().Signal(request);
}

StatusOr<v1::InputResponse> LocalHost::Input(const v1::InputRequest& request) {
  return daemon_->client().Input(request);
}

Status LocalHost::Watch(int generation, const EventCallback& on_event) {
  return daemon_->client().Watch(
      {.job_id = job_id_, .generation = static_cast<std::uint32_t>(generation)}, on_event);
}

void LocalHost::HangUp() { daemon_->HangUp(); }

}  // namespace ds::cli
