#include "runtime/process/port_lease.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

namespace ds {
namespace {

// Uses a dual-stack socket if the host has IPv6, like servers that listen on every address.
StatusOr<UniqueFd> MakeSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  const int on = 1;
  const int off = 0;
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      (family == AF_INET6 &&
       ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0)) {
    return ErrnoError(errno, "setsockopt");
  }
  return fd;
}

int BindAnyAddress(int fd, int family, std::uint16_t port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  const bool is_six = family == AF_INET6;
  const auto* address =
      is_six ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  return ::bind(fd, address, is_six ? sizeof(six) : sizeof(four)) == 0 ? 0 : errno;
}

StatusOr<std::uint16_t> ReadBoundPort(int fd) {
  sockaddr_in6 bound{};  // the port is at the same offset in both address types
  socklen_t length = sizeof(bound);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  return static_cast<std::uint16_t>(ntohs(bound.sin6_port));
}

}  // namespace

StatusOr<PortLease> PortLease::Take(std::uint16_t port) {
  int family = AF_INET6;
  StatusOr<UniqueFd> fd = MakeSocket(family);
  int error = fd.ok() ? BindAnyAddress(fd->get(), family, port) : EAFNOSUPPORT;
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) {
    family = AF_INET;
    fd = MakeSocket(family);
    if (!fd.ok()) return fd.status();
    error = BindAnyAddress(fd->get(), family, port);
  }
  const std::string what = "port " + std::to_string(port);
  if (error == EADDRINUSE) return AlreadyExistsError(what + " is in use on this host");
  if (error != 0) return ErrnoError(error, what);
  DS_ASSIGN_OR_RETURN(const std::uint16_t bound, ReadBoundPort(fd->get()));
  return PortLease(std::move(fd).value(), bound);
}

}  // namespace ds
