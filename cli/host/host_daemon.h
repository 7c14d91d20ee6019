#pragma once

// HostDaemon is the controller's interface to the daemon of one host. DaemonClient implements it
// over gRPC (daemon_client.h); tests implement fakes.
//
// Thread-safe. Only one watch at a time.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/host/connection_probe.h"
#include "cli/host/host_clock.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// Returns true if a call did not reach the daemon, got no response, or reached a daemon that is
// ending. Errors of a running daemon have other codes.
inline bool NobodyAnswered(const Status& answer) {
  return answer.code() == StatusCode::kUnavailable ||
         answer.code() == StatusCode::kDeadlineExceeded;
}

class HostDaemon {
 public:
  template <typename Response>
  using AnswerCallback = std::function<void(const StatusOr<Response>&)>;
  using DoneCallback = std::function<void(const Status&)>;

  virtual ~HostDaemon() = default;
  // Each of these functions calls `done` once, on any thread, possibly before it returns, and
  // before this object is destroyed.
  virtual void Begin(const v1::PrepareRequest& request,
                     AnswerCallback<v1::PrepareResponse> done) = 0;
  virtual void Begin(const v1::LaunchRequest& request, AnswerCallback<v1::LaunchResponse> done) = 0;
  virtual void Begin(const v1::StopRequest& request, AnswerCallback<v1::StopResponse> done) = 0;
  virtual void Begin(const v1::SignalRequest& request, AnswerCallback<v1::SignalResponse> done) = 0;
  // Delivers values of ranks of other hosts to the ranks of this host.
  virtual void Begin(const v1::ShareRequest& request, AnswerCallback<v1::ShareResponse> done) = 0;
  virtual void Begin(const v1::InspectRequest& request,
                     AnswerCallback<v1::InspectResponse> done) = 0;
  // Blocks until the response.
  virtual StatusOr<v1::InputResponse> Input(const v1::InputRequest& request) = 0;
  // The callbacks of a watch run on other threads, one call at a time.
  struct WatchCallbacks {
    // Receives events of the generation, in order. The next batch is read when the last owner has
    // released this one.
    std::function<void(std::shared_ptr<const v1::EventBatch>)> on_events;
    // Called once, at the end: OK after GenerationEnded, else the reason why the stream broke.
    DoneCallback on_end;
  };
  struct WatchedGeneration {
    int number = 0;
    bool again = false;  // as in v1::WatchRequest
  };
  // The watch of a daemon of another host continues over broken connections until Abandon.
  virtual void BeginWatch(const WatchedGeneration& generation, WatchCallbacks callbacks) = 0;
  // Tells the daemon that the job has ended, so that it can end in parallel with others. No call
  // follows.
  virtual void HangUp() {}
  // Gives up the host: calls in progress and all later ones end at once. Kills a daemon of this
  // machine.
  virtual void Abandon() {}
  // Blocks until the processes of an abandoned daemon have ended, if it is on this machine. Calls
  // `notice`, if any, with the processes that it waits for, when that takes longer than a second.
  using NoticeCallback = std::function<void(const std::string&)>;
  virtual void AwaitProcesses(const NoticeCallback& /*notice*/) {}
  // Cancels all Prepare and Launch calls, in progress and later. After a cancelled Launch it is
  // unknown whether ranks have started. Thread-safe.
  virtual void CancelStarts() {}

  // Returns whether the daemon has a lease. This host's daemon depends on a pipe instead.
  virtual bool leased() const { return false; }
  // Returns the latest time from which the daemon may count its lease, by BootTime(). It is
  // constant after Abandon.
  virtual std::chrono::nanoseconds LeaseFrom() const { return {}; }
  // Converts a time of the host's BootTime(). nullopt: no renewal has been answered yet.
  virtual std::optional<TimeRange> ConvertTime(std::chrono::nanoseconds /*boot_time*/) const {
    return std::nullopt;
  }
  // Returns the state of the host's clock, which another controller of this machine restores before
  // its renewals are answered; nullopt: none has been answered yet.
  virtual std::optional<HostClock::Offset> ClockOffset() const { return std::nullopt; }
  virtual void RestoreClock(const HostClock::Offset& /*offset*/) {}
  struct RenewCall {
    bool release = false;  // the daemon is to end
    std::chrono::milliseconds timeout{};
  };
  // Calls `done` once, on any thread, before the timeout and before this object is destroyed.
  virtual void Renew(const RenewCall& /*call*/, DoneCallback done) {
    const DoneCallback answer = std::move(done);
    answer(OkStatus());
  }
  // Returns the arrival time of the last event of a Watch, by the monotonic clock; 0 = none.
  virtual std::chrono::nanoseconds LastEvent() const { return {}; }
  virtual ProbeResult Probe(std::chrono::milliseconds /*timeout*/) const { return {}; }
};

}  // namespace ds::cli
