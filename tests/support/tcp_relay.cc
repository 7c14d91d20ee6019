#include "tests/support/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ds::testing {
namespace {

using Clock = TcpRelay::Clock;

// As a router does not, so that a sender feels a slow network; about what two sockets hold.
constexpr std::size_t kMostHeldBytes = 1 << 20;
constexpr std::size_t kPieceBytes = 1 << 14;

sockaddr_in AddressOf(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) throw std::runtime_error(host);
  return address;
}

// Closing it sends a reset: what a broken connection looks like.
void Reset(UniqueFd& fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  fd.Reset();
}

void SendAtOnce(const UniqueFd& fd) {
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool WouldBlock() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

TcpRelay::TcpRelay(int server_port, const std::string& server)
    : server_(server),
      server_port_(server_port),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  sockaddr_in address = AddressOf("127.0.0.1", 0);
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_.get(), raw, size) != 0 || ::listen(listener_.get(), 16) != 0 ||
      ::getsockname(listener_.get(), raw, &size) != 0) {
    throw std::runtime_error("relay");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

TcpRelay::~TcpRelay() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    Wake();
  }
  thread_.join();
}

void TcpRelay::Wake() { ::eventfd_write(wake_.get(), 1); }

void TcpRelay::Delay(std::chrono::milliseconds delay) {
  const std::lock_guard lock(mutex_);
  delay_ = delay;
}

void TcpRelay::LimitBandwidth(std::uint64_t bytes_per_second) {
  const std::lock_guard lock(mutex_);
  bytes_per_second_ = bytes_per_second;
}

void TcpRelay::Cut() {
  const std::lock_guard lock(mutex_);
  for (Connection& connection : connections_) {
    Reset(connection.client);
    Reset(connection.server);
  }
  connections_.clear();
  Wake();
}

void TcpRelay::Refuse() {
  Cut();
  const std::lock_guard lock(mutex_);
  refuses_ = true;
  Wake();
}

void TcpRelay::Hold(Direction way) {
  const std::lock_guard lock(mutex_);
  held_[static_cast<int>(way)] = true;
  Wake();
}

void TcpRelay::Hold() {
  Hold(Direction::kToServer);
  Hold(Direction::kToClient);
}

void TcpRelay::Release() {
  const std::lock_guard lock(mutex_);
  held_[0] = held_[1] = false;
  Wake();
}

std::string TcpRelay::Recorded() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

void TcpRelay::Run() {
  while (true) {
    Await();
    const std::lock_guard lock(mutex_);
    if (quit_) return;
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    if (refuses_) listener_.Reset();
    AcceptClients();
    connections_.remove_if([this](Connection& connection) { return !Advance(connection); });
  }
}

// Of an end of a connection: what comes `in` there, and what is to go `out`.
short TcpRelay::Wanted(const Stream& incoming, Direction in, const Stream& outgoing, Direction out,
                       Clock::time_point now) const {
  short events = 0;
  if (!incoming.ended && !IsHeld(in) && incoming.held_bytes < kMostHeldBytes) events |= POLLIN;
  const bool due = !outgoing.pieces.empty() && outgoing.pieces.front().due <= now;
  if (due && !IsHeld(out)) events |= POLLOUT;
  return events;
}

void TcpRelay::Await() {
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  std::optional<Clock::time_point> next;
  {
    const std::lock_guard lock(mutex_);
    // One time for both questions: a piece that falls due in between would be waited for by
    // neither.
    const Clock::time_point now = Clock::now();
    const auto add = [&](const UniqueFd& fd, short events) {
      if (events != 0) fds.push_back({fd.get(), events, 0});  // else its end would be reported
    };
    for (const Connection& connection : connections_) {
      const auto& [client, server, to_server, to_client] = connection;
      add(client, Wanted(to_server, Direction::kToServer, to_client, Direction::kToClient, now));
      add(server, Wanted(to_client, Direction::kToClient, to_server, Direction::kToServer, now));
      for (const auto& [stream, way] : {std::pair(&to_server, Direction::kToServer),
                                        std::pair(&to_client, Direction::kToClient)}) {
        if (stream->pieces.empty() || IsHeld(way)) continue;
        const Clock::time_point due = stream->pieces.front().due;
        if (due > now) next = std::min(next.value_or(due), due);
      }
    }
  }
  timespec time{};
  if (next) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(*next - Clock::now());
    const auto nanos = std::max<std::int64_t>(left.count(), 0);
    time = {nanos / 1'000'000'000, nanos % 1'000'000'000};
  }
  ::ppoll(fds.data(), fds.size(), next ? &time : nullptr, nullptr);
}

void TcpRelay::AcceptClients() {
  while (true) {
    Connection connection;
    connection.client.Reset(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.client.valid()) return;
    connection.server.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_in address = AddressOf(server_, server_port_);
    const auto* raw = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(connection.server.get(), raw, sizeof(address)) != 0 && errno != EINPROGRESS) {
      Reset(connection.client);
      continue;
    }
    SendAtOnce(connection.client);
    SendAtOnce(connection.server);
    connections_.push_back(std::move(connection));
  }
}

bool TcpRelay::Advance(Connection& connection) {
  auto& [client, server, to_server, to_client] = connection;
  const bool alive = Take(client.get(), to_server, Direction::kToServer) &&
                     Take(server.get(), to_client, Direction::kToClient) &&
                     Give(server.get(), to_server, Direction::kToServer) &&
                     Give(client.get(), to_client, Direction::kToClient);
  if (!alive) {
    Reset(client);
    Reset(server);
  }
  return alive && !(to_server.passed_on_end && to_client.passed_on_end);
}

// False when the connection is broken.
bool TcpRelay::Take(int from, Stream& stream, Direction way) {
  while (!stream.ended && !IsHeld(way) && stream.held_bytes < kMostHeldBytes) {
    std::string bytes(kPieceBytes, '\0');
    const ssize_t size = ::recv(from, bytes.data(), bytes.size(), 0);
    if (size < 0) return WouldBlock();
    if (size == 0) {
      stream.ended = true;
      return true;
    }
    bytes.resize(static_cast<std::size_t>(size));
    if (way == Direction::kToServer) recorded_ += bytes;
    Clock::time_point due = Clock::now() + delay_;
    if (bytes_per_second_ > 0) {
      const Clock::time_point sent = stream.pieces.empty() ? due : stream.pieces.back().due;
      due = std::max(due, sent) +
            std::chrono::nanoseconds(1'000'000'000 * bytes.size() / bytes_per_second_);
    }
    stream.held_bytes += bytes.size();
    stream.pieces.push_back({due, std::move(bytes)});
  }
  return true;
}

bool TcpRelay::Give(int to, Stream& stream, Direction way) {
  while (!IsHeld(way) && !stream.pieces.empty() && stream.pieces.front().due <= Clock::now()) {
    std::string& bytes = stream.pieces.front().bytes;
    const ssize_t sent = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return WouldBlock();
    stream.held_bytes -= static_cast<std::size_t>(sent);
    bytes.erase(0, static_cast<std::size_t>(sent));
    if (bytes.empty()) stream.pieces.pop_front();
  }
  if (stream.ended && stream.pieces.empty() && !IsHeld(way) && !stream.passed_on_end) {
    ::shutdown(to, SHUT_WR);
    stream.passed_on_end = true;
  }
  return true;
}

}  // namespace ds::testing
