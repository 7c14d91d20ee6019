#pragma once

// DaemonService is the gRPC interface of the supervisor. It checks deadlines and callers, forwards
// each call to the loop's thread and waits for the answer. Renew does not wait for the loop. Reads
// of a file system, which may take long, run on a worker. Watch serves a generation's event log.
//
// Called on gRPC's threads. The owner must shut the server down after the loop has ended and before
// the loop is destroyed.

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
#include <vector>

#include "daemon/job/supervisor.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/worker.h"
#include "daemon/network/network_listener.h"
#include "proto/dsrun.grpc.pb.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// Checks that a caller is the controller and not another host. TLS has already verified that its
// certificate comes from this job's authority. Returns kUnauthenticated without a verified
// certificate, and kPermissionDenied if it has more than one name or another one than `expected`
// (proto/peer_name.h). Pure.
Status CheckCaller(const grpc::AuthContext& caller, const std::string& expected);

class DaemonService final : public v1::Daemon::Service {
 public:
  // `caller` is the required name in a caller's certificate; "" = any process that reaches the
  // socket.
  DaemonService(EventLoop* loop, Supervisor* supervisor, std::string caller = "")
      : loop_(loop), supervisor_(supervisor), caller_(std::move(caller)) {}

  // `on_caller` receives gRPC's name of each authenticated caller, on gRPC's threads. Call it
  // before the server takes calls.
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
  grpc::Status Inspect(grpc::ServerContext* context, const v1::InspectRequest* request,
                       v1::InspectResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context,
                     grpc::ServerReaderWriter<v1::EventBatch, v1::WatchRequest>* stream) override;

  // Waits until no Watch is active, at most until `deadline`.
  void AwaitWatchers(std::chrono::steady_clock::time_point deadline);

 private:
  Status CheckCall(const grpc::ServerContext& context) const;
  // These run on the worker. After the limit they return its step.
  v1::PrepareResponse ExamineInTime(const v1::PrepareRequest& request,
                                    const PreflightContext& context,
                                    std::chrono::nanoseconds limit);
  // Adds the version of Python to the response, which has none after the deadline.
  void DescribePythonInTime(const v1::PrepareRequest& request, Worker::Deadline deadline,
                            v1::PrepareResponse* response);
  // `left`: the time that the call has left. The start of the ranks has a limit, too.
  StatusOr<std::vector<RankCommand>> MakeCommandsInTime(const v1::LaunchRequest& request,
                                                        const HostContext& host,
                                                        std::chrono::nanoseconds left);
  grpc::Status ServeWatch(grpc::ServerContext* context, v1::WatchRequest request,
                          grpc::ServerReaderWriter<v1::EventBatch, v1::WatchRequest>* stream);

  EventLoop* const loop_;
  Supervisor* const supervisor_;
  const std::string caller_;
  Worker worker_;
  std::function<void(const std::string&)> on_caller_;
  std::mutex mutex_;
  std::condition_variable watcher_gone_;
  int watchers_ = 0;  // guarded by mutex_
};

struct NetworkOptions {
  std::string address;
  v1::Credentials credentials;
  std::chrono::nanoseconds lease{};
  // See NetworkListener::WatchCallers; null: closed connections mean nothing.
  std::function<void()> on_controller_gone;
};

// RpcServer serves DaemonService on private connections passed to this process, or on one network
// address with mutual TLS.
//
// On the network it reads nothing before the peer's certificate has been verified. Handshakes have
// a deadline. The number of connections (network_listener.h) and the size of requests are limited.
// Each end detects the loss of the other within the lease.
//
// gRPC serves calls with eight threads, created at the start, because ranks may later use up the
// host's thread limit. A call that finds all threads busy fails with RESOURCE_EXHAUSTED. All other
// functions must be called on the owner's thread.
class RpcServer {
 public:
  // Serves the connections passed to Serve. Returns kResourceExhausted if gRPC's threads exceed the
  // limits.
  static StatusOr<std::unique_ptr<RpcServer>> Start(DaemonService* service);
  // `connection` is one end of a socket pair (runtime/process/unix_socket.h); the controller has
  // the other.
  void Serve(UniqueFd connection);

  // Listens on a free port of exactly that address before it returns. It takes connections once
  // `loop` runs, which must outlive the server. `service` checks that a caller is the controller.
  static StatusOr<std::unique_ptr<RpcServer>> StartOnNetwork(EventLoop* loop,
                                                             const NetworkOptions& options,
                                                             DaemonService* service);
  std::uint16_t port() const { return listener_ == nullptr ? 0 : listener_->port(); }

  // Gives watchers a moment to read the last events. Requires that the event loop has ended.
  void Drain();
  // Drains, cancels calls in progress, and ends gRPC's threads. That can take as long as their
  // poller's timeout (10 s).
  ~RpcServer();

 private:
  explicit RpcServer(DaemonService* service) : service_(service) {}

  DaemonService* const service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<NetworkListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ds::daemon
