#pragma once

// DaemonClient: the daemon of a host as the controller sees it, over the dsrun.v1 service.
//
// Calls are answered, or end when their time is over (kDeadlineExceeded); an unreachable daemon is
// kUnavailable. Input alone waits for its answer. What the daemon refuses keeps its code and
// message.
//
// A daemon of this host is reached over a socket pair: when that connection breaks the daemon is
// gone. One of another host is reached over TCP with mutual TLS: connections come and go, the
// daemon stays. Destroying the client does not end it: a releasing Renew does, or its lease.
//
// Threads: safe to use from several threads; one watch at a time.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cli/host/event_stream.h"
#include "cli/host/host_daemon.h"
#include "cli/host/lease_term.h"
#include "cli/remote/remote_connection.h"
#include "proto/dsrun.grpc.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

// The longest time that a daemon may take to answer a call that does no waiting of its own.
inline constexpr std::chrono::seconds kCallTimeout{30};

// Makes what connections of one job may share.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const v1::Credentials& credentials);

struct TlsOptions {
  v1::Credentials credentials;  // the controller's
  std::string daemon_name;      // what the daemon's certificate must be called (proto/peer_name.h)
  std::chrono::milliseconds lease{
      30'000};  // the daemon's: a dead connection is noticed well within
  std::shared_ptr<grpc::ChannelCredentials> made = nullptr;  // of `credentials`; null: not yet
};

class DaemonClient : public HostDaemon {
 public:
  // `connection` is one end of a socket pair; the daemon has the other, or will have it: calls wait
  // in the socket until it does.
  DaemonClient(std::string job_id, UniqueFd connection,
               std::chrono::milliseconds launch_timeout = kCallTimeout);
  // `target` is "ipv4:10.0.0.2:34567", "ipv6:[fd00::2]:34567" or "unix:/path" of the `tunnel` that
  // leads there, if not the network.
  DaemonClient(std::string job_id, const std::string& target, const TlsOptions& tls,
               std::unique_ptr<RemoteTunnel> tunnel = nullptr);
  // Abandons and waits for the callbacks of calls.
  ~DaemonClient() override;

  // Versions are added. Those that do not fit are kFailedPrecondition;
  // what is wrong with the host is in the response's findings.
  void Begin(const v1::PrepareRequest& request, AnswerCallback<v1::PrepareResponse> done) override;
  // kNotFound: no such program; kAlreadyExists: this generation was launched before;
  // kFailedPrecondition: the last one has not ended. After an error no rank of it runs.
  void Begin(const v1::LaunchRequest& request, AnswerCallback<v1::LaunchResponse> done) override;
  // Is answered once every process group is signalled; the end is seen by a watch. May be repeated:
  // a shorter grace counts, a longer one does not.
  void Begin(const v1::StopRequest& request, AnswerCallback<v1::StopResponse> done) override;
  // kInvalidArgument for signals other than SIGUSR1 and SIGUSR2.
  void Begin(const v1::SignalRequest& request, AnswerCallback<v1::SignalResponse> done) override;
  void Begin(const v1::ShareRequest& request, AnswerCallback<v1::ShareResponse> done) override;
  // Takes a second at most while rank 0 does not read; then fewer bytes are accepted.
  StatusOr<v1::InputResponse> Input(const v1::InputRequest& request) override;

  void BeginWatch(int generation, WatchCallbacks callbacks) override;
  // The same from behind `options.after_sequence`. The stream ends with kUnavailable when the
  // daemon is gone, and may be cancelled as long as the client lives; another watch works then. A
  // batch that is kept makes the ranks wait once 64 MiB of their output are queued, and loses
  // nothing.
  std::shared_ptr<EventStream> BeginWatch(const WatchOptions& options, WatchCallbacks callbacks);

  void Abandon() override;       // with kCancelled
  void CancelStarts() override;  // with kCancelled
  bool leased() const override { return !network_target_.empty(); }
  // `done` is called on a thread of gRPC's, or before this returns.
  void Renew(const RenewCall& call, DoneCallback done) override;
  std::chrono::nanoseconds LeaseFrom() const override;
  // Now, while a daemon of this host prepares or launches, which keeps it from answering: such a
  // call has its own limit, however slow the disk is.
  std::chrono::nanoseconds LastEvent() const override;
  // Looks at the daemon's port. kListening for a daemon of this host.
  ProbeResult Probe(std::chrono::milliseconds timeout) const override;

 private:
  enum class CallKind { kStart, kOther };  // CancelStarts is about the first
  class Context;
  template <typename Request, typename Response>
  using Method = void (v1::Daemon::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);
  struct CallOptions {
    std::chrono::milliseconds timeout{};
    CallKind kind = CallKind::kOther;
  };
  // One call that has one answer, which `done` gets on a thread of gRPC's.
  template <typename Request, typename Response>
  void Call(Method<Request, Response> method, const Request& request, const CallOptions& options,
            AnswerCallback<Response> done);

  const std::string job_id_;
  const std::string network_target_;  // "" for a daemon of this host
  const std::chrono::milliseconds launch_timeout_;
  const std::unique_ptr<RemoteTunnel> tunnel_;  // before what uses it
  std::unique_ptr<v1::Daemon::Stub> stub_;
  mutable std::mutex mutex_;
  std::weak_ptr<EventStream> watch_;  // guarded by mutex_
  std::atomic<std::chrono::nanoseconds> last_event_{};
  std::condition_variable changed_;                 // a call has ended
  std::map<grpc::ClientContext*, CallKind> calls_;  // guarded by mutex_: that are going on
  LeaseTerm term_;                                  // guarded by mutex_
  int pending_ = 0;                // guarded by mutex_: calls whose callbacks have not returned
  bool abandoned_ = false;         // guarded by mutex_
  bool starts_cancelled_ = false;  // guarded by mutex_
};

}  // namespace ds::cli
