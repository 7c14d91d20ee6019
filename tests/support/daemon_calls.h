#pragma once

// Calls to a host's daemon that wait for the answer, for tests. What they return is what HostDaemon
// and DaemonClient say of each call.
//
// Threads: from any.

#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "cli/host/daemon_client.h"
#include "runtime/base/status.h"

namespace ds::testing {

template <typename Response, typename Request>
StatusOr<Response> AwaitAnswer(cli::HostDaemon& daemon, const Request& request) {
  std::promise<StatusOr<Response>> answer;
  daemon.Begin(request, [&](const StatusOr<Response>& each) { answer.set_value(each); });
  return answer.get_future().get();
}

inline StatusOr<cli::v1::PrepareResponse> Prepare(cli::HostDaemon& daemon,
                                                  const cli::v1::PrepareRequest& request) {
  return AwaitAnswer<cli::v1::PrepareResponse>(daemon, request);
}

inline StatusOr<cli::v1::LaunchResponse> Launch(cli::HostDaemon& daemon,
                                                const cli::v1::LaunchRequest& request) {
  return AwaitAnswer<cli::v1::LaunchResponse>(daemon, request);
}

inline StatusOr<cli::v1::StopResponse> Stop(cli::HostDaemon& daemon,
                                            const cli::v1::StopRequest& request) {
  return AwaitAnswer<cli::v1::StopResponse>(daemon, request);
}

// Calls `is_last`, on a thread of gRPC's, with every event behind `options.after_sequence`, until
// it says so (kCancelled), GenerationEnded has been delivered (OK) or the daemon is gone
// (kUnavailable).
inline Status WatchUntil(cli::DaemonClient& client, const cli::WatchOptions& options,
                         const std::function<bool(const cli::v1::Event&)>& is_last) {
  std::promise<std::shared_ptr<cli::EventStream>> begun;
  std::shared_future<std::shared_ptr<cli::EventStream>> stream = begun.get_future();
  std::promise<Status> end;
  bool enough = false;
  begun.set_value(
      client.BeginWatch(options, {.on_events =
                                      [&](const std::shared_ptr<const cli::v1::EventBatch>& batch) {
                                        for (const cli::v1::Event& event : batch->events()) {
                                          if (enough) return;
                                          enough = is_last(event);
                                        }
                                        if (enough) stream.get()->Cancel();
                                      },
                                  .on_end = [&](const Status& status) { end.set_value(status); }}));
  const Status ended = end.get_future().get();
  return enough ? CancelledError("enough was seen") : ended;
}

// The same to the end.
inline Status Watch(cli::DaemonClient& client, const cli::WatchOptions& options,
                    const std::function<void(const cli::v1::Event&)>& on_event) {
  return WatchUntil(client, options, [&](const cli::v1::Event& event) {
    on_event(event);
    return false;
  });
}

}  // namespace ds::testing
