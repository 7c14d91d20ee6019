#pragma once

// NetworkListener: accepts TCP connections on a free port of one address, a bounded number of them.
//
// gRPC could listen itself, but would accept without bound: strangers could use up this process's
// descriptors, which its ranks' pipes need. Nor can they keep the controller out. A connection is
// unfinished until somebody has proved over it who he is (OnCaller), and unfinished ones have few
// places:
//
// - From the controller's address, or this host's own (SSH's tunnel ends here): when all are taken,
//   the one that has been unfinished longest goes, but each is left alone for kHandshakeTime. Until
//   then the next one waits, and those behind it.
// - From anywhere else: fewer, and who comes when they are taken is hung up on at once.
//
// It also tells a controller that has gone from one that is silent. The kernel closes a process's
// connections when it ends, however it ends, and a controller that lives makes a new one at once;
// of one whose network has gone nothing is heard, until this end gives the connection up.
//
// Threads: the loop's, on which it is also destroyed.

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
// A controller that lives calls well within this time, over a new connection if need be.
inline constexpr std::chrono::seconds kCallerReturns{2};

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

  // `loop` outlives the listener. `controller` is the IP address from which the controller is
  // expected; "" when nobody knows: then it is every address.
  Status Start(EventLoop* loop, std::string controller, OnConnection on_connection);

  // Somebody has proved over the connection from `peer` who he is: it keeps its place. `peer` is as
  // gRPC writes it, "ipv4:10.0.0.1:4711" or "ipv6:%5Bfd00::1%5D:4711".
  void OnCaller(const std::string& peer);

  // Calls `on_gone` when the last connection of those who have proved who they are was closed by
  // the other end and kCallerReturns has passed without another; again when that happens again.
  // `patience` is less than the silence in which this end gives a connection up. After Start.
  void WatchCallers(std::chrono::nanoseconds patience, std::function<void()> on_gone);

 private:
  using TimePoint = EventLoop::TimePoint;
  // A connection that was given away. Its number may come to mean another file; the cookie never
  // means another socket.
  struct Given {
    int fd;
    std::uint64_t cookie;
    std::string peer;  // "10.0.0.1:4711" or "[fd00::1]:4711"
    bool expected;     // from an address of the first kind above
    TimePoint since;
    bool known = false;    // it is finished
    bool hung_up = false;  // its end is being dealt with elsewhere
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
  // When there is room for another: now, or from then on. None: not for this one.
  std::optional<TimePoint> FindRoom(const Arrival& arrival, TimePoint now);
  void Give(Arrival arrival, TimePoint now);
  // Accepts nothing until then; `next` is admitted first.
  void PauseUntil(TimePoint when, Arrival next);
  void ForgetClosed();
  void LookForCallers();

  UniqueFd socket_;
  const std::string address_;
  const std::uint16_t port_;
  EventLoop* loop_ = nullptr;
  std::string controller_;
  OnConnection on_connection_;
  std::vector<Given> given_;  // the oldest first
  Arrival next_;
  std::optional<EventLoop::TimerId> pause_;
  std::chrono::nanoseconds patience_{};
  std::function<void()> on_gone_;
  std::optional<EventLoop::TimerId> look_;
  TimePoint last_call_;
  bool had_callers_ = false;            // since it was found that all have gone
  std::optional<TimePoint> closed_at_;  // by the other end: the last of those connections
};

}  // namespace ds::daemon
