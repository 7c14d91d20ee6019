#pragma once

// NetworkListener accepts a limited number of TCP connections on a free port of one address.
//
// gRPC could listen itself, but accepts without limit. Strangers could then use up this process's
// descriptors, which its ranks' pipes need. Nor can strangers lock out the controller. A
// connection is unfinished until the peer has authenticated over it (OnCaller). Slots for
// unfinished connections are limited:
//
// - For the controller's address and this host's own (the end of SSH's tunnel): if all slots are
//   taken, the oldest unfinished connection is closed, but not before kHandshakeTime has passed.
//   Until then the new connection and all later ones wait.
// - For any other address: fewer slots, and new connections are closed at once if all are taken.
//
// The listener also distinguishes a dead controller from a silent one. The kernel closes a
// process's connections however the process ends, and a live controller reconnects at once. If the
// network of a controller fails, its connections stay open until this end gives them up.
//
// Use and destroy it on the loop's thread only.

#include <chrono>
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

// Longer than a handshake takes on a busy host.
inline constexpr std::chrono::seconds kHandshakeTime{2};
inline constexpr std::size_t kUnfinishedExpected = 32;
inline constexpr std::size_t kUnfinishedStrange = 8;
// A live controller calls well within this time, if necessary over a new connection.
inline constexpr std::chrono::seconds kCallerReturns{2};

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

  // `loop` must outlive the listener. `controller` is the expected IP address of the controller; ""
  // = unknown, so every address is expected.
  Status Start(EventLoop* loop, std::string controller, OnConnection on_connection);

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
    bool expected;     // from an expected address, the first kind above
    TimePoint since;
    bool known = false;    // authenticated
    bool hung_up = false;  // shut down here; gRPC still has to close it
  };
  struct Arrival {
    UniqueFd connection;
    std::string peer;
    bool expected = false;
  };

  NetworkListener(UniqueFd socket, std::string address, std::uint16_t port)
      : socket_(std::move(socket)), address_(std::move(address)), port_(port) {}
  Status WatchSocket();
  void Accept();
  void Admit(Arrival arrival);
  // Returns the time at which a slot is free for the connection: now or later. None: reject it.
  std::optional<TimePoint> FindDeadline(const Arrival& arrival, TimePoint now);
  void Give(Arrival arrival, TimePoint now);
  // Stops accepting until `when`; then admits `next` first.
  void PauseUntil(TimePoint when, Arrival next);
  void ForgetClosed();
  void LookForCallers();

  UniqueFd socket_;
  const std::string address_;
  const std::uint16_t port_;
  EventLoop* loop_ = nullptr;
  std::string controller_;
  OnConnection on_connection_;
  std::vector<Given> given_;  // oldest first
  Arrival next_;
  std::optional<EventLoop::TimerId> pause_;
  std::chrono::nanoseconds timeout_{};
  std::function<void()> on_gone_;
  std::optional<EventLoop::TimerId> look_;
  TimePoint last_call_;
  bool had_callers_ = false;            // since the last time that all were gone
  std::optional<TimePoint> closed_at_;  // the time when the other end closed the last one
};

}  // namespace ds::daemon
