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

// A message with one byte and room for one descriptor.
class DescriptorMessage {
 public:
  explicit DescriptorMessage(iovec* data) {
    message_.msg_iov = data;
    message_.msg_iovlen = 1;
    message_.msg_control = control_.data();
    message_.msg_controllen = control_.size();
  }
  msghdr* get() { return &message_; }

 private:
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control_{};
  msghdr message_{};
};

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

Status SendDescriptor(int socket, const UniqueFd& descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  DescriptorMessage message(&data);
  cmsghdr* const header = CMSG_FIRSTHDR(message.get());
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = descriptor.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket, message.get(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? ErrnoError(errno, "sendmsg") : OkStatus();
}

StatusOr<UniqueFd> ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  DescriptorMessage message(&data);
  ssize_t received = -1;
  do {
    received = ::recvmsg(socket, message.get(), MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  const cmsghdr* const header = received > 0 ? CMSG_FIRSTHDR(message.get()) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return UnavailableError("the other end of the socket is closed");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return UniqueFd(fd);
}

}  // namespace ds
