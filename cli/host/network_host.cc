#include "cli/host/network_host.h"

#include <utility>

#include "runtime/base/clock.h"

namespace ds::cli {
namespace {

// A Stop that is lost with its connection is sent again (GenerationRun), so none waits for long.
constexpr std::chrono::seconds kStopTimeout{5};

// Input and shared values are sent again when their answer is lost, so the end of a job never waits
// for one.
constexpr std::chrono::seconds kRepeatedTimeout{5};

}  // namespace

NetworkHost::NetworkHost(std::string job_id, const std::string& target, const TlsOptions& tls,
                         std::unique_ptr<RemoteTunnel> tunnel)
    : job_id_(std::move(job_id)), tunnel_(std::move(tunnel)), client_(target, tls) {}

StatusOr<v1::PrepareResponse> NetworkHost::Prepare(const v1::PrepareRequest& request) {
  return client_.Prepare(request);
}

std::future<StatusOr<v1::LaunchResponse>> NetworkHost::BeginLaunch(
    const v1::LaunchRequest& request) {
  return client_.BeginLaunch(request);
}

StatusOr<v1::StopResponse> NetworkHost::Stop(const v1::StopRequest& request) {
  return client_.Stop(request, kStopTimeout);
}

StatusOr<v1::SignalResponse> NetworkHost::Signal(const v1::SignalRequest& request) {
  return client_.Signal(request, kStopTimeout);
}

StatusOr<v1::InputResponse> NetworkHost::Input(const v1::InputRequest& request) {
  return client_.Input(request, kRepeatedTimeout);
}

StatusOr<v1::ShareResponse> NetworkHost::Share(const v1::ShareRequest& request) {
  return client_.Share(request, kRepeatedTimeout);
}

Status NetworkHost::Watch(int generation, const EventCallback& on_event) {
  return client_.Watch({.job_id = job_id_, .generation = static_cast<std::uint32_t>(generation)},
                       [&](const v1::Event& event) {
                         last_event_ = Clock::System().Now();
                         on_event(event);
                       });
}

void NetworkHost::Renew(const RenewCall& call, RenewCallback done) {
  v1::RenewRequest request;
  request.set_job_id(job_id_);
  request.set_release(call.release);
  client_.Renew(request, call.timeout, std::move(done));
}

ProbeResult NetworkHost::Probe(std::chrono::milliseconds timeout) const {
  return client_.Probe(timeout);
}

}  // namespace ds::cli
