#pragma once

// DaemonClient: the daemon of a host as the controller sees it, over the dsrun.v1 service.
//
// Calls block until they are answered or their time is over (kDeadlineExceeded); an unreachable
// daemon is kUnavailable. What the daemon refuses keeps its code and message.
//
// A daemon of this host is reached over a socket pair: when that connection breaks the daemon is
// gone. One of another host is reached over TCP with mutual TLS: connections come and go, the
// daemon stays. Destroying the client does not end it: a releasing Renew does, or its lease.
//
// Threads: safe to use from several threads; one Watch at a time.
// Lifetimes: the callback of Watch runs on the thread that called Watch, and never after it
// returned.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cli/host/host_daemon.h"
#include "cli/remote/remote_connection.h"
#include "proto/dsrun.grpc.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

// The longest time that a daemon may take to answer a call that does no waiting of its own.
inline constexpr std::chrono::seconds kCallTimeout{30};

struct WatchOptions {
  std::string job_id;
  std::uint32_t generation = 0;
  std::uint64_t after_sequence = 0;  // the last event already seen
};

struct TlsOptions {
  v1::Credentials credentials;  // the controller's
  std::string daemon_name;      // what the daemon's certificate must be called (proto/peer_name.h)
  std::chrono::milliseconds lease{
      30'000};  // the daemon's: a dead connection is noticed well within
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
  // Abandons and waits for the callbacks of renewals.
  ~DaemonClient() override;

  // Versions are added. Those that do not fit are kFailedPrecondition;
  // what is wrong with the host is in the response's findings.
  StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request) override;

  // kNotFound: no such program; kAlreadyExists: this generation was launched before;
  // kFailedPrecondition: the last one has not ended. After an error no rank of it runs.
  StatusOr<v1::LaunchResponse> Launch(const v1::LaunchRequest& request);
  // The same in two steps; get() may be called on any thread. The client outlives the future.
  std::future<StatusOr<v1::LaunchResponse>> BeginLaunch(const v1::LaunchRequest& request) override;

  // Returns once every process group is signalled; the end is seen by Watch. May be repeated: a
  // shorter grace counts, a longer one does not.
  StatusOr<v1::StopResponse> Stop(const v1::StopRequest& request) override;
  // kInvalidArgument for signals other than SIGUSR1 and SIGUSR2.
  StatusOr<v1::SignalResponse> Signal(const v1::SignalRequest& request) override;
  // Takes a second at most while rank 0 does not read; then fewer bytes are accepted.
  StatusOr<v1::InputResponse> Input(const v1::InputRequest& request) override;
  StatusOr<v1::ShareResponse> Share(const v1::ShareRequest& request) override;

  // Calls `on_event` with every event of the generation, in order, until GenerationEnded has been
  // delivered (OK), CancelWatch was called (kCancelled) or the daemon is gone (kUnavailable).
  // An event counts as dealt with when the callback returns; a slow callback makes the ranks wait
  // once 64 MiB of their output are queued, and loses nothing. Over the network a broken connection
  // is made anew, and events go on behind the last one seen, until the daemon's port refuses
  // connections.
  Status Watch(int generation, const EventCallback& on_event) override;
  // The same, behind `options.after_sequence`.
  Status Watch(const WatchOptions& options, const EventCallback& on_event);

  // Ends the Watch that is going on, from any thread, its callback included: at most the event that
  // is being delivered is the last. The next Watch works again.
  void CancelWatch();

  void Abandon() override;       // with kCancelled
  void CancelStarts() override;  // with kCancelled
  bool leased() const override { return !network_target_.empty(); }
  // `done` is called on a thread of gRPC's, or before this returns.
  void Renew(const RenewCall& call, RenewCallback done) override;
  std::chrono::nanoseconds LeaseFrom() const override;
  std::chrono::nanoseconds LastEvent() const override { return last_event_.load(); }
  // Looks at the daemon's port. kListening for a daemon of this host.
  ProbeResult Probe(std::chrono::milliseconds timeout) const override;

 private:
  enum class CallKind { kStart, kOther };  // CancelStarts is about the first
  class Call;
  class PendingLaunch;
  template <typename Request, typename Response>
  using Method = grpc::Status (v1::Daemon::Stub::*)(grpc::ClientContext*, const Request&,
                                                    Response*);
  // One call that has one answer.
  template <typename Request, typename Response>
  StatusOr<Response> Answer(Method<Request, Response> method, const Request& request,
                            std::chrono::milliseconds timeout, CallKind kind = CallKind::kOther);
  struct Position {
    std::uint64_t sequence;  // the last event dealt with
    bool ended;              // that was GenerationEnded
  };
  Status WatchOnce(const WatchOptions& options, const EventCallback& on_event, Position* position);
  Status WatchAcrossConnections(const WatchOptions& options, const EventCallback& on_event,
                                Position* position);
  // To a renewal. A later one names it, and the daemon's lease is counted from then on.
  void TakeAnswer(const v1::RenewResponse& response);
  // False when Watch was cancelled meanwhile.
  bool WaitToReconnect(std::chrono::milliseconds pause);

  const std::string job_id_;
  const std::string network_target_;  // "" for a daemon of this host
  const std::chrono::milliseconds launch_timeout_;
  const std::unique_ptr<RemoteTunnel> tunnel_;  // before what uses it
  std::unique_ptr<v1::Daemon::Stub> stub_;
  mutable std::mutex mutex_;
  grpc::ClientContext* watch_ = nullptr;  // guarded by mutex_
  bool watching_ = false;                 // guarded by mutex_
  std::atomic<bool> watch_cancelled_ = false;
  std::atomic<std::chrono::nanoseconds> last_event_{};
  std::condition_variable changed_;                 // a Watch was cancelled, a renewal has ended
  std::map<grpc::ClientContext*, CallKind> calls_;  // guarded by mutex_: that are going on
  // Guarded by mutex_: the latest answer to a renewal, by the daemon's clock and by ours.
  std::uint64_t answered_ = 0;
  std::chrono::nanoseconds lease_from_;
  int renewals_ = 0;               // guarded by mutex_: whose callbacks have not returned
  bool abandoned_ = false;         // guarded by mutex_
  bool starts_cancelled_ = false;  // guarded by mutex_
};

}  // namespace ds::cli
