#pragma once

// DaemonClient is the controller's client of one host's daemon, over the dsrun.v1 service.
//
// A call returns a response, or kDeadlineExceeded after its timeout; an unreachable daemon is
// kUnavailable. Only Input blocks until the response. An error of the daemon keeps its code and
// message.
//
// A daemon of this host is connected by a socket pair; when that breaks, the daemon is gone. A
// daemon of another host is connected by TCP with mutual TLS, which reconnects as needed. It has
// two connections, so that renewals and stops do not wait behind output and input.
// Destroying the client does not end the daemon; a Renew with `release` or the end of its lease
// does.
//
// Thread-safe. Only one watch at a time.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cli/host/deadlines.h"
#include "cli/host/event_stream.h"
#include "cli/host/host_clock.h"
#include "cli/host/host_daemon.h"
#include "cli/host/lease_term.h"
#include "cli/remote/remote_connection.h"
#include "proto/dsrun.grpc.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

// Makes the channel credentials that all connections of a job can share.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const v1::Credentials& credentials);

struct TlsOptions {
  v1::Credentials credentials;  // of the controller
  std::string daemon_name;      // required name in the daemon's certificate (proto/peer_name.h)
  std::chrono::milliseconds lease{
      30'000};  // of the daemon; a dead connection is detected well before its end
  std::shared_ptr<grpc::ChannelCredentials> made = nullptr;  // of `credentials`; null: not made
};

class DaemonClient : public HostDaemon {
 public:
  // `connection` is one end of a socket pair. The daemon may get the other end later; calls wait in
  // the socket until then.
  DaemonClient(std::string job_id, UniqueFd connection,
               std::chrono::milliseconds launch_timeout = deadlines::kCall);
  // `target` is "ipv4:10.0.0.2:34567", "ipv6:[fd00::2]:34567", or the "unix:/path" of `tunnel`, if
  // the daemon is reached through one.
  DaemonClient(std::string job_id, const std::string& target, const TlsOptions& tls,
               std::unique_ptr<RemoteTunnel> tunnel = nullptr);
  // Calls Abandon and waits for the callbacks of all calls.
  ~DaemonClient() override;

  // Adds the versions to the request. kFailedPrecondition: the protocol versions differ. Problems
  // of the host are findings of the response.
  void Begin(const v1::PrepareRequest& request, AnswerCallback<v1::PrepareResponse> done) override;
  // kNotFound: no such program; kAlreadyExists: this generation was launched before;
  // kFailedPrecondition: the previous one has not ended. After an error no rank of the generation
  // runs.
  void Begin(const v1::LaunchRequest& request, AnswerCallback<v1::LaunchResponse> done) override;
  // Completes when every process group has been signalled; a watch reports the end. May be
  // repeated: only a shorter grace period has an effect.
  void Begin(const v1::StopRequest& request, AnswerCallback<v1::StopResponse> done) override;
  // kInvalidArgument for signals other than SIGUSR1 and SIGUSR2.
  void Begin(const v1::SignalRequest& request, AnswerCallback<v1::SignalResponse> done) override;
  void Begin(const v1::ShareRequest& request, AnswerCallback<v1::ShareResponse> done) override;
  void Begin(const v1::InspectRequest& request, AnswerCallback<v1::InspectResponse> done) override;
  // Blocks for at most a second while rank 0 does not read; then it accepts fewer bytes.
  StatusOr<v1::InputResponse> Input(const v1::InputRequest& request) override;

  void BeginWatch(const WatchedGeneration& generation, WatchCallbacks callbacks) override;
  // Watches from the event after `options.after_sequence`. The stream ends with kUnavailable when
  // the daemon is gone. It can be cancelled as long as the client exists, and another watch can
  // follow. While the caller keeps a batch, the ranks block once 64 MiB of their output are queued;
  // nothing is lost.
  std::shared_ptr<EventStream> BeginWatch(const WatchOptions& options, WatchCallbacks callbacks);

  void Abandon() override;       // with kCancelled
  void CancelStarts() override;  // with kCancelled
  bool leased() const override { return !network_target_.empty(); }
  // Calls `done` on a thread of gRPC, or before this function returns.
  void Renew(const RenewCall& call, DoneCallback done) override;
  std::chrono::nanoseconds LeaseFrom() const override;
  std::optional<TimeRange> ConvertTime(std::chrono::nanoseconds boot_time) const override;
  std::optional<HostClock::Offset> ClockOffset() const override;
  void RestoreClock(const HostClock::Offset& offset) override;
  std::chrono::nanoseconds LastEvent() const override { return last_event_.load(); }
  // Probes the daemon's port. kListening for a daemon of this host.
  ProbeResult Probe(std::chrono::milliseconds timeout) const override;

 private:
  enum class CallKind { kStart, kOther };  // CancelStarts cancels kStart
  class Context;
  template <typename Request, typename Response>
  using Method = void (v1::Daemon::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);
  struct CallOptions {
    std::chrono::milliseconds timeout{};
    CallKind kind = CallKind::kOther;
    v1::Daemon::Stub* stub = nullptr;  // null: control_
  };
  // For calls with much data.
  v1::Daemon::Stub* bulk() const { return bulk_ == nullptr ? control_.get() : bulk_.get(); }
  // Starts one unary call; `done` receives its response on a thread of gRPC.
  template <typename Request, typename Response>
  void Call(Method<Request, Response> method, const Request& request, const CallOptions& options,
            AnswerCallback<Response> done);

  const std::string job_id_;
  const std::string network_target_;  // "" for a daemon of this host
  const std::chrono::milliseconds launch_timeout_;
  const std::unique_ptr<RemoteTunnel> tunnel_;  // declared before its users
  std::unique_ptr<v1::Daemon::Stub> control_;
  std::unique_ptr<v1::Daemon::Stub> bulk_;  // over the network; null: control_ carries everything
  mutable std::mutex mutex_;
  std::weak_ptr<EventStream> watch_;  // guarded by mutex_
  std::atomic<std::chrono::nanoseconds> last_event_{};
  std::condition_variable changed_;                 // signalled when a call has ended
  std::map<grpc::ClientContext*, CallKind> calls_;  // guarded by mutex_: calls in progress
  LeaseTerm term_;                                  // guarded by mutex_
  HostClock clock_;                                 // guarded by mutex_
  int pending_ = 0;                // guarded by mutex_: calls with callbacks that have not returned
  bool abandoned_ = false;         // guarded by mutex_
  bool starts_cancelled_ = false;  // guarded by mutex_
};

}  // namespace ds::cli
