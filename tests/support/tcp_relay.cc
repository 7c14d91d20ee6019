#include "tests/support/tcp_relay.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstring>
#include <stdexcept>
#include <vector>

namespace ds::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

UniqueFd TcpSocket() { return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// Closing it sends a reset: what a broken connection looks like.
void Reset(UniqueFd& fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  fd.Reset();
}

bool SendAll(int fd, const char* data, ssize_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
    if (sent < 0) return false;
    data += sent;
    size -= sent;
  }
  return true;
}

}  // namespace

TcpRelay::TcpRelay(int server_port)
    : server_port_(server_port), listener_(TcpSocket()), wake_(::eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in address = Loopback(0);
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
  }
  Wake();
  thread_.join();
}

void TcpRelay::Wake() { ::eventfd_write(wake_.get(), 1); }

void TcpRelay::Cut() {
  const std::lock_guard lock(mutex_);
  for (Connection& connection : connections_) {
    Reset(connection.client);
    Reset(connection.server);
  }
  connections_.clear();
  Wake();
}

void TcpRelay::Hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
  Wake();
}

void TcpRelay::Release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  Wake();
}

std::string TcpRelay::Recorded() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

std::uint64_t TcpRelay::delivered() {
  const std::lock_guard lock(mutex_);
  return delivered_;
}

void TcpRelay::Run() {
  while (true) {
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      if (quit_) return;
      for (const Connection& connection : connections_) {
        if (held_) break;
        fds.push_back({connection.client.get(), POLLIN, 0});
        fds.push_back({connection.server.get(), POLLIN, 0});
      }
    }
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    eventfd_t ignored = 0;
    if (fds[0].revents != 0) {
      ::eventfd_read(wake_.get(), &ignored);
      continue;  // what was polled may be closed by now
    }
    const std::lock_guard lock(mutex_);
    if (fds[1].revents != 0) AcceptClient();
    std::size_t next = 2;
    for (auto it = connections_.begin(); it != connections_.end() && next < fds.size(); next += 2) {
      bool open = fds[next].fd == it->client.get();
      if (open && fds[next].revents != 0) open = Pass(it->client.get(), it->server.get(), true);
      if (open && fds[next + 1].revents != 0) {
        open = Pass(it->server.get(), it->client.get(), false);
      }
      it = open ? std::next(it) : connections_.erase(it);
    }
  }
}

void TcpRelay::AcceptClient() {
  Connection connection;
  connection.client.Reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  connection.server = TcpSocket();
  const sockaddr_in address = Loopback(server_port_);
  if (::connect(connection.server.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) == 0) {
    connections_.push_back(std::move(connection));
  }
}

bool TcpRelay::Pass(int from, int to, bool from_client) {
  char buffer[1 << 16];
  const ssize_t size = ::recv(from, buffer, sizeof(buffer), 0);
  if (size <= 0) return false;
  if (from_client) {
    recorded_.append(buffer, static_cast<std::size_t>(size));
  } else {
    delivered_ += static_cast<std::uint64_t>(size);
  }
  return SendAll(to, buffer, size);
}

}  // namespace ds::testing
