#pragma once

// The messages of two ranks over a fresh connection, before there is a stream: who calls whom, and
// the proofs of both (peer_proof.h). Plain data.
//
//   caller  Greeting               Proof
//   called            Answer               Welcome

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/net/peer_proof.h"

namespace ds::comm {

struct Greeting {
  std::array<char, 8> magic = {'d', 's', 'r', 'u', 'n', 'l', 'n', '2'};
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Nonce nonce = {};
};

struct Answer {
  Nonce nonce = {};
  Proof proof = {};
};

// The called rank has taken the caller's proof.
struct Welcome {
  std::uint8_t byte = 'w';
};

// Gathers the bytes of one message at a time from a socket that does not block.
class MessageReader {
 public:
  // True when the message is complete; an error when no more can come.
  StatusOr<bool> Read(int fd, std::span<std::byte> message);
  template <typename Message>
  StatusOr<bool> Read(int fd, Message* message) {
    return Read(fd, std::as_writable_bytes(std::span(message, 1)));
  }

 private:
  std::vector<std::byte> read_;  // of the message that is awaited
};

// Requires that little was written before: a fresh connection takes as much at once.
Status WriteMessage(int fd, std::span<const std::byte> message);
template <typename Message>
Status WriteMessage(int fd, const Message& message) {
  return WriteMessage(fd, std::as_bytes(std::span(&message, 1)));
}

}  // namespace ds::comm
