#include "daemon/network/network_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace ds::daemon {
namespace {

constexpr int kBacklog = 64;
// Without descriptors a connection can be neither taken nor refused: it is left waiting so long.
constexpr std::chrono::milliseconds kPause{100};

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

StatusOr<AddressList> ParseAddress(const std::string& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;  // a name might mean several addresses
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(address.c_str(), "0", &hints, &list); error != 0) {
    return InvalidArgumentError("'" + address + "' is not an IP address: " + ::gai_strerror(error));
  }
  return AddressList(list, ::freeaddrinfo);
}

bool IsWildcard(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return std::memcmp(&six, &in6addr_any, sizeof(six)) == 0;
}

StatusOr<std::uint16_t> PortOf(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  return ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(bound).sin_port
                                          : reinterpret_cast<sockaddr_in6&>(bound).sin6_port);
}

std::optional<std::uint64_t> CookieOf(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

}  // namespace

StatusOr<std::unique_ptr<NetworkListener>> NetworkListener::Bind(const std::string& address) {
  DS_ASSIGN_OR_RETURN(const AddressList list, ParseAddress(address));
  if (IsWildcard(*list->ai_addr)) {
    return InvalidArgumentError("the daemon listens on one address, not on all (" + address + ")");
  }
  UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoError(errno, "socket");
  if (::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return ErrnoError(errno, "cannot listen on " + address);
  }
  DS_ASSIGN_OR_RETURN(const std::uint16_t port, PortOf(socket.get()));
  return std::unique_ptr<NetworkListener>(new NetworkListener(std::move(socket), port));
}

NetworkListener::~NetworkListener() {
  if (loop_ == nullptr) return;
  loop_->Remove(socket_.get());
  if (pause_) loop_->CancelTimer(*pause_);
}

Status NetworkListener::Start(EventLoop* loop, std::size_t max_connections,
                              OnConnection on_connection) {
  loop_ = loop;
  max_connections_ = max_connections;
  on_connection_ = std::move(on_connection);
  return loop_->Add(socket_.get(), [this] { Accept(); });
}

void NetworkListener::Accept() {
  UniqueFd connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    // Anything else is a connection that has gone again.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) PauseAccepting();
    return;
  }
  if (!HasRoom()) return;
  const int on = 1;
  ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (const auto cookie = CookieOf(connection.get())) given_.push_back({connection.get(), *cookie});
  on_connection_(std::move(connection));
}

void NetworkListener::PauseAccepting() {
  loop_->Remove(socket_.get());
  pause_ = loop_->CallAt(std::chrono::steady_clock::now() + kPause, [this] {
    pause_.reset();
    static_cast<void>(loop_->Add(socket_.get(), [this] { Accept(); }));
  });
}

bool NetworkListener::HasRoom() {
  std::erase_if(given_, [](const Given& given) { return CookieOf(given.fd) != given.cookie; });
  return given_.size() < max_connections_;
}

}  // namespace ds::daemon
