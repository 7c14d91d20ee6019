#include "daemon/network/network_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace ds::daemon {
namespace {

constexpr int kBacklog = 128;
// Without free descriptors a connection can be neither accepted nor refused. It waits this long.
constexpr std::chrono::milliseconds kPause{100};
constexpr std::chrono::milliseconds kLookInterval{250};
// Includes connections that were shut down and are still being closed.
constexpr std::size_t kMostUnfinished = 2 * (kUnfinishedExpected + kUnfinishedStrange);

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

StatusOr<AddressList> ParseAddress(const std::string& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;  // no names, because one may have several addresses
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

std::uint16_t ReadPort(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

StatusOr<std::uint16_t> ReadBoundPort(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  return ReadPort(bound);
}

// Returns "10.0.0.1", "fd00::1"; "" on failure.
std::string FormatAddress(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  const int error =
      ::getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host.data() : "";
}

std::string FormatPeer(const std::string& address, std::uint16_t port) {
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]:" : address + ":") + std::to_string(port);
}

// Returns gRPC's name of a peer without its scheme, unescaped.
std::string Unescape(std::string peer) {
  peer.erase(0, peer.find(':') + 1);
  for (const auto& [code, text] :
       {std::pair("%5B", "["), std::pair("%5D", "]"), std::pair("%25", "%")}) {
    if (const auto at = peer.find(code); at != std::string::npos) peer.replace(at, 3, text);
  }
  return peer;
}

std::optional<std::uint64_t> ReadCookie(int fd) {
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
  DS_ASSIGN_OR_RETURN(const std::uint16_t port, ReadBoundPort(socket.get()));
  return std::unique_ptr<NetworkListener>(
      new NetworkListener(std::move(socket), FormatAddress(list->ai_addr, list->ai_addrlen), port));
}

NetworkListener::~NetworkListener() {
  if (loop_ == nullptr) return;
  loop_->Remove(socket_.get());
  if (pause_) loop_->CancelTimer(*pause_);
  if (look_) loop_->CancelTimer(*look_);
}

Status NetworkListener::Start(EventLoop* loop, std::string controller, OnConnection on_connection) {
  loop_ = loop;
  controller_ = std::move(controller);
  on_connection_ = std::move(on_connection);
  return WatchSocket();
}

Status NetworkListener::WatchSocket() {
  return loop_->Add(socket_.get(), [this] { Accept(); });
}

void NetworkListener::Accept() {
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  auto* address = reinterpret_cast<sockaddr*>(&from);
  Arrival arrival;
  arrival.connection.Reset(::accept4(socket_.get(), address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!arrival.connection.valid()) {
    // Other errors mean that the connection has been closed again.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      PauseUntil(std::chrono::steady_clock::now() + kPause, {});
    }
    return;
  }
  const std::string text = FormatAddress(address, size);
  arrival.peer = FormatPeer(text, ReadPort(from));
  arrival.expected = controller_.empty() || text == controller_ || text == address_;
  Admit(std::move(arrival));
}

void NetworkListener::Admit(Arrival arrival) {
  const TimePoint now = std::chrono::steady_clock::now();
  const std::optional<TimePoint> deadline = FindDeadline(arrival, now);
  if (!deadline) return;
  if (*deadline > now) return PauseUntil(*deadline, std::move(arrival));
  Give(std::move(arrival), now);
}

std::optional<NetworkListener::TimePoint> NetworkListener::FindDeadline(const Arrival& arrival,
                                                                        TimePoint now) {
  ForgetClosed();
  std::vector<Given*> unfinished;
  std::size_t all = 0;
  for (Given& given : given_) {
    if (given.known) continue;
    ++all;
    if (given.expected == arrival.expected && !given.hung_up) unfinished.push_back(&given);
  }
  if (!arrival.expected) {
    const bool is_accepted = all < kMostUnfinished && unfinished.size() < kUnfinishedStrange;
    return is_accepted ? std::optional(now) : std::nullopt;
  }
  if (all >= kMostUnfinished) return now + kPause;
  if (unfinished.size() < kUnfinishedExpected) return now;
  Given& oldest = *unfinished.front();
  if (now < oldest.since + kHandshakeTime) return oldest.since + kHandshakeTime;
  // The descriptor cannot have been reused for another socket since the check, because only this
  // thread creates sockets.
  ::shutdown(oldest.fd, SHUT_RDWR);
  oldest.hung_up = true;
  return now;
}

void NetworkListener::Give(Arrival arrival, TimePoint now) {
  const int fd = arrival.connection.get();
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (const auto cookie = ReadCookie(fd)) {
    given_.push_back({fd, *cookie, std::move(arrival.peer), arrival.expected, now});
  }
  on_connection_(std::move(arrival.connection));
}

void NetworkListener::OnCaller(const std::string& peer) {
  const std::string text = Unescape(peer);
  last_call_ = std::chrono::steady_clock::now();
  had_callers_ = true;
  for (Given& given : given_) {
    if (given.peer == text) given.known = true;
  }
}

void NetworkListener::ForgetClosed() {
  std::erase_if(given_, [](const Given& given) { return ReadCookie(given.fd) != given.cookie; });
}

void NetworkListener::WatchCallers(std::chrono::nanoseconds timeout,
                                   std::function<void()> on_gone) {
  timeout_ = timeout;
  on_gone_ = std::move(on_gone);
  LookForCallers();
}

void NetworkListener::LookForCallers() {
  const TimePoint now = std::chrono::steady_clock::now();
  ForgetClosed();
  // An expected connection without authentication may still be the controller's.
  const bool has_callers = std::any_of(given_.begin(), given_.end(), [](const Given& given) {
    return given.known || (given.expected && !given.hung_up);
  });
  if (has_callers) {
    closed_at_.reset();
  } else if (std::exchange(had_callers_, false) && now - last_call_ < timeout_) {
    closed_at_ = now;
  }
  if (closed_at_ && now - *closed_at_ >= kCallerReturns) {
    closed_at_.reset();
    on_gone_();
  }
  look_ = loop_->CallAt(now + kLookInterval, [this] { LookForCallers(); });
}

void NetworkListener::PauseUntil(TimePoint when, Arrival next) {
  if (!pause_) loop_->Remove(socket_.get());
  next_ = std::move(next);
  pause_ = loop_->CallAt(when, [this] {
    pause_.reset();
    Arrival arrival = std::exchange(next_, {});
    if (arrival.connection.valid()) Admit(std::move(arrival));
    if (!pause_) static_cast<void>(WatchSocket());
  });
}

}  // namespace ds::daemon
