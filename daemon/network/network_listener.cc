#include "daemon/network/network_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace ds::daemon {
namespace {

// The kernel limits it to net.core.somaxconn. Connections that TCP_DEFER_ACCEPT holds back count.
constexpr int kBacklog = 4096;
// A live peer sends the first bytes of its handshake at once.
constexpr std::chrono::seconds kHeldBack{10};
// Without free descriptors a connection can be neither accepted nor refused. It waits this long.
constexpr std::chrono::milliseconds kPause{100};
constexpr std::chrono::milliseconds kLookInterval{250};

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

std::size_t LimitUnfinished() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostUnfinished;
  return std::clamp<std::size_t>(limit.rlim_cur / kUnfinishedPartOfFiles, 1, kMostUnfinished);
}

}  // namespace

StatusOr<std::unique_ptr<NetworkListener>> NetworkListener::Bind(const std::string& address) {
  DS_ASSIGN_OR_RETURN(const AddressList list, ParseAddress(address));
  if (IsWildcard(*list->ai_addr)) {
    return InvalidArgumentError("the daemon listens on one address, not on all (" + address + ")");
  }
  UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoError(errno, "socket");
  // Without it silent connections are unfinished ones.
  const int seconds = static_cast<int>(kHeldBack.count());
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
  if (::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return ErrnoError(errno, "cannot listen on " + address);
  }
  DS_ASSIGN_OR_RETURN(const std::uint16_t port, ReadBoundPort(socket.get()));
  return std::unique_ptr<NetworkListener>(new NetworkListener(std::move(socket), port));
}

NetworkListener::~NetworkListener() {
  if (loop_ == nullptr) return;
  loop_->Remove(socket_.get());
  if (pause_) loop_->CancelTimer(*pause_);
  if (look_) loop_->CancelTimer(*look_);
}

Status NetworkListener::Start(EventLoop* loop, OnConnection on_connection) {
  loop_ = loop;
  on_connection_ = std::move(on_connection);
  most_unfinished_ = LimitUnfinished();
  return WatchSocket();
}

Status NetworkListener::WatchSocket() {
  return loop_->Add(socket_.get(), [this] { Accept(); });
}

void NetworkListener::Accept() {
  if (!HasRoom()) return Pause();  // the kernel keeps the connection until then
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  auto* address = reinterpret_cast<sockaddr*>(&from);
  UniqueFd connection(::accept4(socket_.get(), address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    // Other errors mean that the connection has been closed again.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) Pause();
    return;
  }
  if (unfinished_.size() >= most_unfinished_) CloseOldest();
  Give(std::move(connection), FormatPeer(FormatAddress(address, size), ReadPort(from)));
}

bool NetworkListener::IsClosed(const Given& given) { return ReadCookie(given.fd) != given.cookie; }

bool NetworkListener::HasRoom() {
  if (unfinished_.size() < most_unfinished_) return true;
  // Looks at all of them only after as many new ones.
  if (shut_down_.size() >= most_unfinished_) std::erase_if(shut_down_, IsClosed);
  return shut_down_.size() < most_unfinished_;
}

void NetworkListener::CloseOldest() {
  // The descriptor cannot be reused for another socket meanwhile, because only this thread creates
  // sockets.
  if (const Given& oldest = unfinished_.front(); !IsClosed(oldest)) {
    ::shutdown(oldest.fd, SHUT_RDWR);
    shut_down_.push_back(oldest);
  }
  unfinished_.pop_front();
}

void NetworkListener::Give(UniqueFd connection, std::string peer) {
  const int fd = connection.get();
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (const auto cookie = ReadCookie(fd)) unfinished_.push_back({fd, *cookie, std::move(peer)});
  on_connection_(std::move(connection));
}

void NetworkListener::OnCaller(const std::string& peer) {
  last_call_ = std::chrono::steady_clock::now();
  had_callers_ = true;
  const auto is_peer = [text = Unescape(peer)](const Given& given) { return given.peer == text; };
  if (std::any_of(callers_.begin(), callers_.end(), is_peer)) return;
  const auto caller = std::find_if(unfinished_.begin(), unfinished_.end(), is_peer);
  if (caller == unfinished_.end()) return;
  std::erase_if(callers_, IsClosed);  // there may be no LookForCallers
  callers_.push_back(std::move(*caller));
  unfinished_.erase(caller);
}

void NetworkListener::WatchCallers(std::chrono::nanoseconds timeout,
                                   std::function<void()> on_gone) {
  timeout_ = timeout;
  on_gone_ = std::move(on_gone);
  LookForCallers();
}

void NetworkListener::LookForCallers() {
  const TimePoint now = std::chrono::steady_clock::now();
  std::erase_if(callers_, IsClosed);
  std::erase_if(unfinished_, IsClosed);
  // An unfinished connection may be the controller's.
  if (!callers_.empty() || !unfinished_.empty()) {
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

void NetworkListener::Pause() {
  loop_->Remove(socket_.get());
  pause_ = loop_->CallAt(std::chrono::steady_clock::now() + kPause, [this] {
    pause_.reset();
    static_cast<void>(WatchSocket());
  });
}

}  // namespace ds::daemon
