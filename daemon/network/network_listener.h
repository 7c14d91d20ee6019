#pragma once

// NetworkListener: accepts TCP connections on a free port of one address, a bounded number of them.
//
// gRPC could listen itself, but would accept without bound: strangers could use up this process's
// descriptors, which its ranks' pipes need. Who connects beyond the bound is hung up on at once;
// strangers lose their places when their handshake fails or takes too long.
//
// Threads: the loop's, on which it is also destroyed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/loop/event_loop.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

class NetworkListener {
 public:
  // Owns the connection from then on; it does not block.
  using OnConnection = std::function<void(UniqueFd)>;

  // `address` is an IPv4 or IPv6 address of this host, without a port. Not the wildcard: a daemon
  // that listens everywhere is reachable from networks nobody thought of (kInvalidArgument).
  static StatusOr<std::unique_ptr<NetworkListener>> Bind(const std::string& address);
  ~NetworkListener();
  NetworkListener(const NetworkListener&) = delete;
  NetworkListener& operator=(const NetworkListener&) = delete;

  std::uint16_t port() const { return port_; }
  int fd() const { return socket_.get(); }

  // `loop` outlives the listener.
  Status Start(EventLoop* loop, std::size_t max_connections, OnConnection on_connection);

 private:
  // A connection that was given away. Its number may come to mean another file; the cookie never
  // means another socket.
  struct Given {
    int fd;
    std::uint64_t cookie;
  };

  NetworkListener(UniqueFd socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}
  void Accept();
  void PauseAccepting();
  bool HasRoom();

  UniqueFd socket_;
  const std::uint16_t port_;
  EventLoop* loop_ = nullptr;
  std::size_t max_connections_ = 0;
  OnConnection on_connection_;
  std::vector<Given> given_;
  std::optional<EventLoop::TimerId> pause_;
};

}  // namespace ds::daemon
