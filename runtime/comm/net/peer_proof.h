#pragma once

// Two ranks prove to each other that they are of one job, over a connection that anybody may have
// made: each has the job's key, and shows it by an HMAC-SHA256 over who they are and random bytes
// that both have just drawn. The key itself is never sent. Pure but for MakeNonce and what
// reads and writes messages.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::comm {

using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;

// Names the two ends and one attempt of theirs; a proof is of one such.
struct Introduction {
  std::uint32_t from = 0;  // the rank that has connected
  std::uint32_t to = 0;    // the rank that was called
  std::uint32_t rail = 0;  // of those between the two (peer_rails.h)
  Nonce from_nonce = {};
  Nonce to_nonce = {};
};

StatusOr<Nonce> MakeNonce();

// The proof of the rank that was called, or of the one that has connected.
Proof MakeProof(const std::string& key, const Introduction& introduction, bool of_called);

// Takes the same time whatever differs.
bool IsProof(const std::string& key, const Introduction& introduction, bool of_called,
             const Proof& shown);

// 32 bytes that only the two ends know, and only in this attempt.
std::string MakeSecret(const std::string& key, const Introduction& introduction);

// The messages of two ranks over a fresh connection, before there is a stream: who calls whom, and
// the proofs of both.
//
//   caller  Greeting               Proof
//   called            Answer               Welcome
struct Greeting {
  std::array<char, 8> magic = {'d', 's', 'r', 'u', 'n', 'l', 'n', '3'};
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t rail = 0;
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
