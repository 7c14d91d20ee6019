#include "cli/remote/dial.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace ds::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

struct Resolution {
  std::mutex mutex;
  std::condition_variable done;
  bool ready = false;              // guarded by mutex, as are the members below
  int error = 0;                   // of getaddrinfo
  std::vector<Address> addresses;  // without duplicates
};

std::string NameHostPort(const HostPort& target) {
  return target.host + " port " + std::to_string(target.port);
}

int MillisUntil(Interrupter::Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

HostFailure TimedOut(const HostPort& target, const std::string& what) {
  return {.kind = FailureKind::kTimeout,
          .message = NameHostPort(target) + ": " + what,
          .hint = "is the host up, and does a firewall drop SSH? --ssh_timeout waits longer",
          .transient = true};
}

HostFailure FromErrno(const HostPort& target, int error) {
  HostFailure failure{.message =
                          NameHostPort(target) + ": " + std::generic_category().message(error)};
  switch (error) {
    case ECONNREFUSED:
      failure.kind = FailureKind::kRefused;
      failure.hint = "is sshd running there? give another port by port= in the hostfile";
      failure.transient = true;
      return failure;
    case ETIMEDOUT:
      return TimedOut(target, "no answer");
    case ECONNRESET:
      failure.kind = FailureKind::kHandshake;
      failure.hint =
          "the connection was closed at once: the server is full, or a firewall blocks it";
      failure.transient = true;
      return failure;
    default:
      failure.kind = FailureKind::kUnreachable;
      failure.hint = "is the host up and in this network? give another address by address=";
      return failure;
  }
}

int Resolve(const HostPort& target, int flags, std::vector<Address>* addresses) {
  addrinfo hints{};
  hints.ai_flags = flags | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const std::string port = std::to_string(target.port);
  const int error = ::getaddrinfo(target.host.c_str(), port.c_str(), &hints, &first);
  if (error != 0) return error;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    Address address;
    address.size = each->ai_addrlen;
    std::memcpy(&address.bytes, each->ai_addr, each->ai_addrlen);
    addresses->push_back(address);
  }
  ::freeaddrinfo(first);
  return 0;
}

HostResult<std::vector<Address>> ResolveInTime(const HostPort& target,
                                               Interrupter::Deadline deadline,
                                               Interrupter* interrupter) {
  std::vector<Address> numeric;
  if (Resolve(target, AI_NUMERICHOST, &numeric) == 0) return numeric;
  const auto shared = std::make_shared<Resolution>();
  std::thread([shared, target] {
    std::vector<Address> found;
    const int error = Resolve(target, AI_ADDRCONFIG, &found);
    const std::lock_guard lock(shared->mutex);
    shared->error = error;
    shared->addresses = std::move(found);
    shared->ready = true;
    shared->done.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  while (!shared->ready) {
    if (interrupter->interrupted()) return InterruptedFailure();
    if (SteadyClock::now() >= deadline) {
      return HostFailure{.kind = FailureKind::kName,
                         .message = "'" + target.host + "': the name servers do not answer",
                         .hint = "give its address by address= in the hostfile",
                         .transient = true};
    }
    // Waits in slices, because the interrupter does not notify this condition variable.
    shared->done.wait_until(lock,
                            std::min(deadline, SteadyClock::now() + std::chrono::milliseconds(50)));
  }
  if (shared->error != 0) {
    return HostFailure{
        .kind = FailureKind::kName,
        .message = "'" + target.host + "': " + ::gai_strerror(shared->error),
        .hint = "check its spelling, or give its address by address= in the hostfile",
        .transient = shared->error == EAI_AGAIN};
  }
  return std::move(shared->addresses);
}

HostResult<UniqueFd> ConnectTo(const Address& address, const HostPort& target,
                               Interrupter::Deadline deadline, Interrupter* interrupter) {
  UniqueFd fd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return FromErrno(target, errno);
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  int error = 0;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0) {
    error = errno;
  }
  if (error == EINPROGRESS) {
    std::array<pollfd, 2> watched = {pollfd{fd.get(), POLLOUT, 0},
                                     pollfd{interrupter->fd(), POLLIN, 0}};
    int count = 0;
    do {
      count = ::poll(watched.data(), watched.size(), MillisUntil(deadline));
    } while (count < 0 && errno == EINTR);
    if (watched[1].revents != 0) return InterruptedFailure();
    if (count == 0) return TimedOut(target, "no answer");
    socklen_t size = sizeof(error);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) return FromErrno(target, error);
  return fd;
}

std::string AsText(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.ss_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.ss_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  if (bytes == nullptr) return "";
  return ::inet_ntop(address.ss_family, bytes, text.data(), text.size()) == nullptr ? ""
                                                                                    : text.data();
}

}  // namespace

HostResult<UniqueFd> Dial(const HostPort& target, Interrupter::Deadline deadline,
                          Interrupter* interrupter) {
  const auto addresses = ResolveInTime(target, deadline, interrupter);
  if (!addresses.ok()) return addresses.failure();
  std::vector<HostFailure> failures;
  for (std::size_t i = 0; i < addresses->size(); ++i) {
    const auto share = (deadline - SteadyClock::now()) / static_cast<int>(addresses->size() - i);
    HostResult<UniqueFd> socket =
        ConnectTo((*addresses)[i], target, SteadyClock::now() + share, interrupter);
    if (socket.ok() || socket.failure().kind == FailureKind::kInterrupted) return socket;
    failures.push_back(socket.failure());
  }
  return failures.front();  // of the resolver's preferred address; there is at least one
}

std::string LocalAddressTowards(const std::string& address) {
  std::vector<Address> addresses;
  if (Resolve({address, 9}, AI_NUMERICHOST, &addresses) != 0) return "";
  const UniqueFd fd(::socket(addresses[0].bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t size = sizeof(local);
  // Connecting a datagram socket sends nothing; it only selects the route.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&addresses[0].bytes),
                addresses[0].size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return "";
  }
  return AsText(local);
}

std::string ReadPeerAddress(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  return AsText(peer);
}

}  // namespace ds::cli
