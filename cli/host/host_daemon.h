#pragma once

// HostDaemon: what the controller needs of the daemon of one host. The real ones are reached over
// gRPC (daemon_client.h); tests bring their own.
//
// Threads: safe to use from several threads; one watch at a time.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cli/host/connection_probe.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// Tells whether a call reached nobody, or nobody who answers, or a daemon that is ending. What a
// daemon refuses has other codes.
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
  // Each of these calls `done` once, on any thread, before it returns or later, but before this
  // object is gone.
  virtual void Begin(const v1::PrepareRequest& request,
                     AnswerCallback<v1::PrepareResponse> done) = 0;
  virtual void Begin(const v1::LaunchRequest& request, AnswerCallback<v1::LaunchResponse> done) = 0;
  virtual void Begin(const v1::StopRequest& request, AnswerCallback<v1::StopResponse> done) = 0;
  virtual void Begin(const v1::SignalRequest& request, AnswerCallback<v1::SignalResponse> done) = 0;
  // Gives the ranks what those of other hosts have put.
  virtual void Begin(const v1::ShareRequest& request, AnswerCallback<v1::ShareResponse> done) = 0;
  // Waits for the answer.
  virtual StatusOr<v1::InputResponse> Input(const v1::InputRequest& request) = 0;
  // Callbacks of a watch are called on threads of others, one call at a time.
  struct WatchCallbacks {
    // Events of the generation, in order. Whoever holds the batch still deals with them: what
    // follows is read when the last has let go of it.
    std::function<void(std::shared_ptr<const v1::EventBatch>)> on_events;
    // Once, and nothing follows: OK after GenerationEnded, else why the stream broke.
    DoneCallback on_end;
  };
  // A daemon of another host goes on being watched over broken connections until Abandon.
  virtual void BeginWatch(int generation, WatchCallbacks callbacks) = 0;
  // The job has ended: nothing is asked of it any more, and it may end while others finish.
  virtual void HangUp() {}
  // The host is given up: calls that are going on, and all later ones, end at once. A daemon of
  // this machine is killed.
  virtual void Abandon() {}
  // Returns when the processes of a daemon that was given up have ended, if it is of this machine.
  // `notice`, if any, is told what it waits for when that takes longer than a second.
  using NoticeCallback = std::function<void(const std::string&)>;
  virtual void AwaitProcesses(const NoticeCallback& /*notice*/) {}
  // No rank is wanted any more: Prepare and Launch end at once, those that are going on and later
  // ones. Whether a Launch has started ranks is not known then. From any thread.
  virtual void CancelStarts() {}

  // Tells whether the daemon ends when nobody renews its lease; this host's lives by a pipe.
  virtual bool leased() const { return false; }
  // The daemon counts its lease from this time or an earlier one, by BootTime(). It does not change
  // any more once the host is abandoned.
  virtual std::chrono::nanoseconds LeaseFrom() const { return {}; }
  struct RenewCall {
    bool release = false;  // the daemon is to end
    std::chrono::milliseconds timeout{};
  };
  // Calls `done` once, on any thread, before the timeout is over or this object is gone.
  virtual void Renew(const RenewCall& /*call*/, DoneCallback done) {
    const DoneCallback answer = std::move(done);
    answer(OkStatus());
  }
  // The time at which the last event of a Watch came, by the monotonic clock; 0 = none has come.
  virtual std::chrono::nanoseconds LastEvent() const { return {}; }
  virtual ProbeResult Probe(std::chrono::milliseconds /*timeout*/) const { return {}; }
};

}  // namespace ds::cli
