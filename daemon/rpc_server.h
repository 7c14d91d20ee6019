#pragma once

// RpcServer: DaemonService on a unix socket that only this user can reach.
//
// Threads: one gRPC poller, plus one thread per Watch; the owner's thread otherwise.

#include <grpcpp/server.h>

#include <filesystem>
#include <memory>

#include "daemon/daemon_service.h"
#include "runtime/base/status.h"

namespace ds::daemon {

class RpcServer {
 public:
  // Listens when it returns. The socket's folder must belong to this user and be closed to others
  // (kPermissionDenied).
  static StatusOr<std::unique_ptr<RpcServer>> Start(const std::filesystem::path& socket,
                                                    DaemonService* service);
  // Gives watchers a moment to take the last events and removes the socket. Requires: the event loop
  // has ended.
  void Drain();
  // Drains, cancels what is still going on, and ends gRPC's threads, which can take as long as their
  // poller's timeout (10 s).
  ~RpcServer();

 private:
  RpcServer(std::filesystem::path socket, DaemonService* service,
            std::unique_ptr<grpc::Server> server)
      : socket_(std::move(socket)), service_(service), server_(std::move(server)) {}

  std::filesystem::path socket_;
  DaemonService* service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ds::daemon
