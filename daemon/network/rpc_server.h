#pragma once

// RpcServer: DaemonService on a connection that this process was given and nobody else can reach,
// or on one address of the network with mutual TLS.
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
#include <memory>
#include <string>

#include "daemon/network/daemon_service.h"
#include "daemon/network/network_listener.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

struct NetworkOptions {
  std::string address;
  v1::Credentials credentials;
  std::chrono::nanoseconds lease{};
  std::string controller_address;  // where calls are expected from; "" when nobody knows
};

class RpcServer {
 public:
  // Takes calls on the connections it is given.
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
