#include "runtime/process/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace ds {
namespace {

constexpr int kBacklog = 64;
constexpr std::size_t kMaxDescriptors = 4;
using Clock = std::chrono::steady_clock;

StatusOr<sockaddr_un> AddressOf(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof(address.sun_path)) {
    return InvalidArgumentError(path.string() + ": too long for the path of a socket");
  }
  std::memcpy(address.sun_path, path.c_str(), path.native().size() + 1);
  return address;
}

// Room for the descriptors of one message.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> bytes{};
};

void AddDescriptors(const std::vector<int>& descriptors, Control* control, msghdr* header) {
  if (descriptors.empty()) return;
  const std::size_t size = descriptors.size() * sizeof(int);
  header->msg_control = control->bytes.data();
  header->msg_controllen = CMSG_SPACE(size);
  cmsghdr* part = CMSG_FIRSTHDR(header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(part), descriptors.data(), size);
}

void TakeDescriptors(msghdr* header, std::vector<UniqueFd>* descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors->emplace_back(fd);
    }
  }
}

Status Await(int socket, short event, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() < 0) return DeadlineExceededError("the other end of a socket is silent");
    pollfd waiting{socket, event, 0};
    const int count = ::poll(&waiting, 1, static_cast<int>(left.count()));
    if (count > 0) return OkStatus();
    if (count < 0 && errno != EINTR) return ErrnoError(errno, "poll");
  }
}

Status ReadExactly(int socket, Clock::time_point deadline, std::span<char> to,
                   std::vector<UniqueFd>* descriptors) {
  while (!to.empty()) {
    DS_RETURN_IF_ERROR(Await(socket, POLLIN, deadline));
    iovec part{to.data(), to.size()};
    Control control;
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return ErrnoError(errno, "recvmsg");
    TakeDescriptors(&header, descriptors);
    if (got == 0) return UnavailableError("the other end of a socket has gone");
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return OkStatus();
}

}  // namespace

StatusOr<SocketPair> MakeSocketPair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return ErrnoError(errno, "socketpair");
  }
  return SocketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Status CheckPrivateFolder(const std::filesystem::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return ErrnoError(errno, folder.string());
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return PermissionDeniedError(folder.string() + ": the folder must be yours alone (chmod 700)");
  }
  return OkStatus();
}

StatusOr<UniqueFd> ListenUnix(const std::filesystem::path& path) {
  DS_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  // The mode of the socket's file is that of the descriptor, less the umask.
  ::fchmod(fd.get(), S_IRUSR | S_IWUSR);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EADDRINUSE) return AlreadyExistsError(path.string() + " is there already");
    return ErrnoError(errno, path.string());
  }
  if (::listen(fd.get(), kBacklog) != 0) return ErrnoError(errno, path.string());
  return fd;
}

StatusOr<UniqueFd> ConnectUnix(const std::filesystem::path& path) {
  DS_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return UnavailableError("nobody takes connections at " + path.string());
  }
  return fd;
}

StatusOr<SocketPeer> PeerOf(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoError(errno, "SO_PEERCRED");
  }
  return SocketPeer{.pid = peer.pid, .user = peer.uid};
}

Status SendMessage(int socket, std::string_view message, std::chrono::milliseconds patience,
                   const std::vector<int>& descriptors) {
  const Clock::time_point deadline = Clock::now() + patience;
  const auto size = static_cast<std::uint32_t>(message.size());
  if (descriptors.size() > kMaxDescriptors || size != message.size()) {
    return InvalidArgumentError("a message with too many descriptors or bytes");
  }
  std::string framed(sizeof(size), '\0');
  std::memcpy(framed.data(), &size, sizeof(size));
  framed.append(message);
  std::span<char> left(framed);
  while (!left.empty()) {
    iovec part{left.data(), left.size()};
    Control control;
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (left.size() == framed.size()) AddDescriptors(descriptors, &control, &header);
    const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      left = left.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      DS_RETURN_IF_ERROR(Await(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return ErrnoError(errno, "sendmsg");
    }
  }
  return OkStatus();
}

StatusOr<ReceivedMessage> ReceiveMessage(int socket, std::size_t max_bytes,
                                         std::chrono::milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  ReceivedMessage message;
  std::array<char, sizeof(std::uint32_t)> length{};
  DS_RETURN_IF_ERROR(ReadExactly(socket, deadline, length, &message.descriptors));
  std::uint32_t size = 0;
  std::memcpy(&size, length.data(), sizeof(size));
  if (size > max_bytes) return ResourceExhaustedError("a message on a socket is too long");
  message.bytes.resize(size);
  DS_RETURN_IF_ERROR(ReadExactly(socket, deadline, message.bytes, &message.descriptors));
  return message;
}

}  // namespace ds
