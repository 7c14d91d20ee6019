#pragma once

// NetworkListener accepts a limited number of TCP connections on a free port of one address.
//
// gRPC could listen itself, but accepts without limit. Strangers could then use up this process's
// descriptors, which its ranks' pipes need. Nor can strangers lock out the controller:
//
// - The kernel holds back a connection without data for some seconds (TCP_DEFER_ACCEPT). It needs
//   no descriptor and no memory of this process.
// - A connection is unfinished until the peer has authenticated over it (OnCaller). gRPC closes
//   it when its time for the handshake is over. If too many are unfinished, the oldest is closed.
//
// The address of a peer decides nothing: other users of the controller's host have it, too.
//
// The listener also distinguishes a dead controller from a silent one. The kernel closes a
// process's connections however the process ends, and a live controller reconnects at once. If the
// network of a controller fails, its connections stay open until this end gives them up.
//
// Use and destroy it on the loop's thread only.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/loop/event_loop.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// The limit of unfinished connections, and the part of the limit of open files that they may use.
// To close the controller's connection, strangers would have to open as many within the time of its
// handshake. gRPC takes about 80 KiB for each.
inline constexpr std::size_t kMostUnfinished = 2048;
inline constexpr std::size_t kUnfinishedPartOfFiles = 4;
// A live controller calls well within this time, if necessary over a new connection, and so does
// the agent that takes over the job of a killed one.
inline constexpr std::chrono::seconds kCallerReturns{5};

class NetworkListener {
 public:
  // Takes ownership of the non-blocking connection.
  using OnConnection = std::function<void(UniqueFd)>;

  // `address` is an IPv4 or IPv6 address of this host, without a port. The wildcard is rejected
  // (kInvalidArgument), because it would be reachable from unintended networks.
  static StatusOr<std::unique_ptr<NetworkListener>> Bind(const std::string& address);
  ~NetworkListener();
  NetworkListener(const NetworkListener&) = delete;
  NetworkListener& operator=(const NetworkListener&) = delete;

  std::uint16_t port() const { return port_; }
  int fd() const { return socket_.get(); }

  // `loop` must outlive the listener.
  Status Start(EventLoop* loop, OnConnection on_connection);

  // Call when the peer on the connection from `peer` has authenticated; the connection is then
  // kept. `peer` has gRPC's format, "ipv4:10.0.0.1:4711" or "ipv6:%5Bfd00::1%5D:4711".
  void OnCaller(const std::string& peer);

  // Calls `on_gone` when the other end has closed the last authenticated connection and no new one
  // follows within kCallerReturns. It may be called repeatedly. `timeout` must be shorter than the
  // timeout of this end for a silent connection. Call it after Start.
  void WatchCallers(std::chrono::nanoseconds timeout, std::function<void()> on_gone);

 private:
  using TimePoint = EventLoop::TimePoint;
  // A connection passed to OnConnection. Its descriptor number may be reused for another file; the
  // cookie is never reused for another socket.
  struct Given {
    int fd;
    std::uint64_t cookie;
    std::string peer;  // "10.0.0.1:4711" or "[fd00::1]:4711"
  };

  NetworkListener(UniqueFd socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}
  Status WatchSocket();
  void Accept();
  static bool IsClosed(const Given& given);
  // Returns false if gRPC has not yet closed as many connections as this end has shut down.
  bool HasRoom();
  // Shuts down the oldest unfinished connection.
  void CloseOldest();
  void Give(UniqueFd connection, std::string peer);
  void Pause();
  void LookForCallers();

  UniqueFd socket_;
  const std::uint16_t port_;
  EventLoop* loop_ = nullptr;
  OnConnection on_connection_;
  std::size_t most_unfinished_ = kMostUnfinished;
  std::deque<Given> unfinished_;  // oldest first
  std::deque<Given> shut_down_;   // by this end; gRPC still has to close them
  std::deque<Given> callers_;     // authenticated
  std::optional<EventLoop::TimerId> pause_;
  std::chrono::nanoseconds timeout_{};
  std::function<void()> on_gone_;
  std::optional<EventLoop::TimerId> look_;
  TimePoint last_call_;
  bool had_callers_ = false;            // since the last time that all were gone
  std::optional<TimePoint> closed_at_;  // the time when the other end closed the last one
};

}  // namespace ds::daemon
