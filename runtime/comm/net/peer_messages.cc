#include "runtime/comm/net/peer_messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace ds::comm {

StatusOr<bool> MessageReader::Read(int fd, std::span<std::byte> message) {
  const std::size_t before = read_.size();
  read_.resize(message.size());
  const ssize_t got = ::recv(fd, read_.data() + before, message.size() - before, 0);
  const int error = errno;
  read_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && (error == EAGAIN || error == EINTR)) return false;
  if (got < 0) return ErrnoError(error, "reading");
  if (got == 0) return UnavailableError("it hung up");
  if (read_.size() < message.size()) return false;
  std::copy(read_.begin(), read_.end(), message.begin());
  read_.clear();
  return true;
}

Status WriteMessage(int fd, std::span<const std::byte> message) {
  const ssize_t written = ::send(fd, message.data(), message.size(), MSG_NOSIGNAL);
  if (written == static_cast<ssize_t>(message.size())) return OkStatus();
  return written < 0 ? ErrnoError(errno, "writing") : UnavailableError("it takes no bytes");
}

}  // namespace ds::comm
