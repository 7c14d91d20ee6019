#pragma once

// PeerStream: the byte stream between two ranks over a connected non-blocking socket, plain or
// encrypted with TLS 1.3.
//
// TLS derives its key from the job's key (RFC 8446, 2.2: an external pre-shared key with an
// ephemeral Diffie-Hellman exchange). No certificates are needed, and a later leak of the job's key
// does not expose recorded traffic.
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
  // State of the handshake: done, or the socket event it waits for.
  enum class Handshake { kDone, kReadable, kWritable };

  virtual ~PeerStream() = default;
  int fd() const { return fd_.get(); }

  // Continues the handshake. Call it until it returns kDone, before all other calls below.
  virtual StatusOr<Handshake> Shake() = 0;
  // Sends `head` and then `body`, like one ::send of both. Returns the number of bytes accepted, or
  // -1 with errno. After EAGAIN the next call must begin with the same bytes.
  virtual ssize_t Write(std::span<const std::byte> head, std::span<const std::byte> body) = 0;
  // Reads like ::recv: returns 0 when the peer has closed the connection, -1 with errno.
  virtual ssize_t Read(std::span<std::byte> to) = 0;
  // Returns whether there are bytes to read that poll does not report.
  virtual bool HoldsUnread() const = 0;
  // Returns whether the peer's host has not answered for `silence` (peer_silence.h).
  virtual bool IsSilent(std::chrono::seconds silence) const;

 protected:
  explicit PeerStream(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  UniqueFd fd_;
};

std::unique_ptr<PeerStream> MakePlainStream(UniqueFd fd);

// `secret` is 32 bytes that both ends have, unique to this connection. Exactly one end passes true
// for `calls`.
std::unique_ptr<PeerStream> MakeEncryptedStream(UniqueFd fd, const std::string& secret, bool calls);

}  // namespace ds::comm
