#pragma once

// DaemonService: the gRPC face of the supervisor. Checks what concerns the wire (deadlines, who
// calls), hands each call to the loop's thread and waits for its answer; Watch serves a
// generation's event log.
//
// Threads: gRPC's own. Nothing here outlives the loop: the server is shut down after the loop has
// ended and before it is destroyed.

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/job/supervisor.h"
#include "daemon/loop/event_loop.h"
#include "daemon/network/network_listener.h"
#include "proto/dsrun.grpc.pb.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// TLS has verified that a caller holds a certificate of this job's authority; this says whether it
// is the controller's, and not another host's. kUnauthenticated without a verified certificate,
// kPermissionDenied when it names somebody else than `expected` (proto/peer_name.h), or more than
// one. Pure.
Status CheckCaller(const grpc::AuthContext& caller, const std::string& expected);

class DaemonService final : public v1::Daemon::Service {
 public:
  // `caller` is the name that a caller's certificate must have; "" = whoever reaches the socket.
  DaemonService(EventLoop* loop, Supervisor* supervisor, std::string caller = "")
      : loop_(loop), supervisor_(supervisor), caller_(std::move(caller)) {}

  // `on_caller` gets the name gRPC has for each caller who has proved who he is, on gRPC's threads.
  // Call before there are calls.
  void ReportCallers(std::function<void(const std::string&)> on_caller) {
    on_caller_ = std::move(on_caller);
  }

  grpc::Status Prepare(grpc::ServerContext* context, const v1::PrepareRequest* request,
                       v1::PrepareResponse* response) override;
  grpc::Status Launch(grpc::ServerContext* context, const v1::LaunchRequest* request,
                      v1::LaunchResponse* response) override;
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                    v1::StopResponse* response) override;
  grpc::Status Renew(grpc::ServerContext* context, const v1::RenewRequest* request,
                     v1::RenewResponse* response) override;
  grpc::Status Signal(grpc::ServerContext* context, const v1::SignalRequest* request,
                      v1::SignalResponse* response) override;
  grpc::Status Share(grpc::ServerContext* context, const v1::ShareRequest* request,
                     v1::ShareResponse* response) override;
  grpc::Status Input(grpc::ServerContext* context, const v1::InputRequest* request,
                     v1::InputResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context,
                     grpc::ServerReaderWriter<v1::EventBatch, v1::WatchRequest>* stream) override;

  // Waits until no Watch is going on, at most until `deadline`.
  void AwaitWatchers(std::chrono::steady_clock::time_point deadline);

 private:
  Status CheckCall(const grpc::ServerContext& context) const;
  grpc::Status ServeWatch(grpc::ServerContext* context, v1::WatchRequest request,
                          grpc::ServerReaderWriter<v1::EventBatch, v1::WatchRequest>* stream);

  EventLoop* const loop_;
  Supervisor* const supervisor_;
  const std::string caller_;
  std::function<void(const std::string&)> on_caller_;
  std::mutex mutex_;
  std::condition_variable watcher_gone_;
  int watchers_ = 0;  // guarded by mutex_
};

struct NetworkOptions {
  std::string address;
  v1::Credentials credentials;
  std::chrono::nanoseconds lease{};
  std::string controller_address;            // where calls are expected from; "" when nobody knows
  std::function<void()> on_controller_gone;  // as NetworkListener::WatchCallers says
};

// RpcServer: DaemonService on a connection that this process was given and nobody else can reach,
// or on one address of the network with mutual TLS.
//
// On the network nothing of a stranger is read before its certificate has been verified: handshakes
// have a deadline, connections a bound (network_listener.h), requests a size, and each end notices
// within the lease when the other is gone.
//
// Threads: eight of gRPC's for calls, from the beginning to the end: none is needed later, when the
// ranks may have used up what the host gives, and a call that finds all at work is refused with
// RESOURCE_EXHAUSTED. The owner's thread otherwise.
class RpcServer {
 public:
  // Takes calls on the connections it is given. kResourceExhausted: gRPC's threads have no room.
  static StatusOr<std::unique_ptr<RpcServer>> Start(DaemonService* service);
  // `connection` is one end of a socket pair (runtime/process/unix_socket.h) whose other end the
  // controller has.
  void Serve(UniqueFd connection);

  // Listens when it returns, on a free port of exactly that address, and takes connections once
  // `loop` runs, which outlives the server. Whether a caller is the controller is `service`'s to
  // check.
  static StatusOr<std::unique_ptr<RpcServer>> StartOnNetwork(EventLoop* loop,
                                                             const NetworkOptions& options,
                                                             DaemonService* service);
  std::uint16_t port() const { return listener_ == nullptr ? 0 : listener_->port(); }

  // Gives watchers a moment to take the last events. Requires: the event loop has ended.
  void Drain();
  // Drains, cancels what is still going on, and ends gRPC's threads, which can take as long as
  // their poller's timeout (10 s).
  ~RpcServer();

 private:
  explicit RpcServer(DaemonService* service) : service_(service) {}

  DaemonService* const service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<NetworkListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ds::daemon
