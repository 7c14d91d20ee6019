#include "cli/host/connection_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

#include "runtime/base/unique_fd.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

constexpr std::string_view kUnix = "unix:";

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// 0 or an errno.
int ConnectWithin(int fd, const addrinfo& address, std::chrono::milliseconds timeout) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  pollfd writable{fd, POLLOUT, 0};
  int count = -1;
  do {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    count = ::poll(&writable, 1, static_cast<int>(std::max<long>(left.count(), 0)));
  } while (count < 0 && errno == EINTR);
  if (count < 0) return errno;
  if (count == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

ProbeResult ProbeTunnel(const std::string& path) {
  if (ConnectUnix(path).ok()) return {Reachability::kListening, "the SSH connection is open"};
  return {Reachability::kRefused, "the SSH connection that leads to it has ended"};
}

}  // namespace

ProbeResult ProbeTarget(const std::string& target, std::chrono::milliseconds timeout) {
  if (target.starts_with(kUnix)) return ProbeTunnel(target.substr(kUnix.size()));
  const std::string host_and_port = target.substr(target.find(':') + 1);
  const std::size_t colon = host_and_port.rfind(':');
  std::string host = host_and_port.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const std::string port = colon == std::string::npos ? "" : host_and_port.substr(colon + 1);
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) {
    return {Reachability::kUnreachable, host_and_port + ": not an address"};
  }
  const AddressList address(list, ::freeaddrinfo);
  const UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int error = fd.valid() ? ConnectWithin(fd.get(), *address, timeout) : errno;
  if (error == 0) return {Reachability::kListening, host_and_port + " takes connections"};
  return {error == ECONNREFUSED ? Reachability::kRefused : Reachability::kUnreachable,
          host_and_port + ": " + std::generic_category().message(error)};
}

}  // namespace ds::cli
