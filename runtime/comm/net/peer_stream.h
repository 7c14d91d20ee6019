#pragma once

// PeerStream: the bytes between two ranks over a connected socket that does not block, as they are
// or inside TLS 1.3.
//
// TLS takes its key from the job's (RFC 8446, 2.2: an external pre-shared key with an ephemeral
// Diffie-Hellman exchange), so there are no certificates, and who learns the job's key later cannot
// read what was recorded.
//
// Not thread-safe.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::comm {

class PeerStream {
 public:
  // Tells what the handshake waits for.
  enum class Handshake { kDone, kReadable, kWritable };

  virtual ~PeerStream() = default;
  int fd() const { return fd_.get(); }

  // Goes on with what has to be agreed on first. To be called until it is done, and before all
  // below.
  virtual StatusOr<Handshake> Shake() = 0;
  // Sends `head` and `body` behind it as ::send would in one piece: returns the number of bytes
  // that were taken, or -1 with errno. After EAGAIN the next call begins with the same bytes.
  virtual ssize_t Write(std::span<const std::byte> head, std::span<const std::byte> body) = 0;
  // Reads as ::recv does: returns 0 when the peer has closed the connection, -1 with errno.
  virtual ssize_t Read(std::span<std::byte> to) = 0;
  // There are bytes to be read that poll does not know of.
  virtual bool HoldsUnread() const = 0;
  // The other end's host has not answered for so long (peer_silence.h).
  virtual bool IsSilent(std::chrono::seconds silence) const;

 protected:
  explicit PeerStream(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  UniqueFd fd_;
};

std::unique_ptr<PeerStream> MakePlainStream(UniqueFd fd);

// `secret`: 32 bytes that both ends have, of this connection only. One end `calls`.
std::unique_ptr<PeerStream> MakeEncryptedStream(UniqueFd fd, const std::string& secret, bool calls);

}  // namespace ds::comm
