#pragma once

// RpcServer: DaemonService on a unix socket that only this user can reach, or on one address of the
// network with mutual TLS.
//
// On the network nothing of a stranger is read before its certificate has been verified: handshakes
// have a deadline, connections a bound (network_listener.h), requests a size, and each end notices
// within the lease when the other is gone.
//
// Threads: one gRPC poller, plus one thread per Watch; the owner's thread otherwise.

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "daemon/credentials.h"
#include "daemon/daemon_service.h"
#include "daemon/network_listener.h"
#include "runtime/base/status.h"

namespace ds::daemon {

struct NetworkOptions {
  std::string address;
  Credentials credentials;
  std::chrono::nanoseconds lease{};
};

class RpcServer {
 public:
  // Listens when it returns. The socket's folder must belong to this user and be closed to others
  // (kPermissionDenied).
  static StatusOr<std::unique_ptr<RpcServer>> Start(const std::filesystem::path& socket,
                                                    DaemonService* service);
  // Listens when it returns, on a free port of exactly that address, and takes connections once
  // `loop` runs, which outlives the server. Whether a caller is the controller is `service`'s to
  // check.
  static StatusOr<std::unique_ptr<RpcServer>> StartOnNetwork(EventLoop* loop,
                                                             const NetworkOptions& options,
                                                             DaemonService* service);
  std::uint16_t port() const { return listener_ == nullptr ? 0 : listener_->port(); }

  // Gives watchers a moment to take the last events and removes the socket. Requires: the event
  // loop has ended.
  void Drain();
  // Drains, cancels what is still going on, and ends gRPC's threads, which can take as long as
  // their poller's timeout (10 s).
  ~RpcServer();

 private:
  explicit RpcServer(DaemonService* service) : service_(service) {}

  DaemonService* const service_;
  std::filesystem::path socket_;  // empty on the network
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<NetworkListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ds::daemon
