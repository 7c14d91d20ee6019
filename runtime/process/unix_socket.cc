#include "runtime/process/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ds {
namespace {

constexpr int kBacklog = 64;

StatusOr<sockaddr_un> MakeAddress(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof(address.sun_path)) {
    return InvalidArgumentError(path.string() + ": too long for the path of a socket");
  }
  std::memcpy(address.sun_path, path.c_str(), path.native().size() + 1);
  return address;
}

}  // namespace

StatusOr<SocketPair> MakeSocketPair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return ErrnoError(errno, "socketpair");
  }
  return SocketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

StatusOr<UniqueFd> ListenUnix(const std::filesystem::path& path) {
  DS_ASSIGN_OR_RETURN(const sockaddr_un address, MakeAddress(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  // The socket's file gets the mode of the descriptor, less the umask.
  ::fchmod(fd.get(), S_IRUSR | S_IWUSR);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EADDRINUSE) return AlreadyExistsError(path.string() + " is there already");
    return ErrnoError(errno, path.string());
  }
  if (::listen(fd.get(), kBacklog) != 0) return ErrnoError(errno, path.string());
  return fd;
}

StatusOr<UniqueFd> ConnectUnix(const std::filesystem::path& path) {
  DS_ASSIGN_OR_RETURN(const sockaddr_un address, MakeAddress(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return UnavailableError("no process accepts connections at " + path.string());
  }
  return fd;
}

}  // namespace ds
