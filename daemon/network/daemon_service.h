#pragma once

// DaemonService: the gRPC face of the supervisor. Checks what concerns the wire (deadlines, who
// calls), hands each call to the loop's thread and waits for its answer; Watch serves a
// generation's event log.
//
// Threads: gRPC's own. Nothing here outlives the loop: the server is shut down after the loop has
// ended and before it is destroyed.

#include <grpcpp/security/auth_context.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/job/supervisor.h"
#include "daemon/loop/event_loop.h"
#include "proto/dsrun.grpc.pb.h"

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

}  // namespace ds::daemon
