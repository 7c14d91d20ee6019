#pragma once

// Mutual authentication of two ranks over an untrusted connection. Each rank proves that it has the
// job's key with an HMAC-SHA256 over both ranks' numbers and random bytes that both have just
// drawn. The key itself is never sent. Pure, except for MakeNonce and the functions that read and
// write messages.

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

// Introduction: identifies the two ends and one connection attempt. A proof is valid for one
// Introduction only.
struct Introduction {
  std::uint32_t from = 0;  // the rank that connected
  std::uint32_t to = 0;    // the rank that accepted
  std::uint32_t rail = 0;  // index of the rail between the two ranks (peer_rails.h)
  Nonce from_nonce = {};
  Nonce to_nonce = {};
};

StatusOr<Nonce> MakeNonce();

// Returns the proof of the accepting rank if `of_called`, else of the connecting rank.
Proof MakeProof(const std::string& key, const Introduction& introduction, bool of_called);

// Checks a proof in constant time.
bool IsProof(const std::string& key, const Introduction& introduction, bool of_called,
             const Proof& shown);

// Returns 32 bytes that only the two ends know, unique to this attempt.
std::string MakeSecret(const std::string& key, const Introduction& introduction);

// Messages of two ranks over a new connection, before there is a stream: the ranks' numbers and
// both proofs.
//
//   caller  Greeting               Proof
//   called            GreetingReply               Welcome
struct Greeting {
  std::array<char, 8> magic = {'d', 's', 'r', 'u', 'n', 'l', 'n', '3'};
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t rail = 0;
  Nonce nonce = {};
};

struct GreetingReply {
  Nonce nonce = {};
  Proof proof = {};
};

// Confirms that the accepting rank has verified the caller's proof.
struct Welcome {
  std::uint8_t byte = 'w';
};

// MessageReader: assembles one message at a time from a non-blocking socket.
class MessageReader {
 public:
  // Returns true when the message is complete, and an error when no more bytes can arrive.
  StatusOr<bool> Read(int fd, std::span<std::byte> message);
  template <typename Message>
  StatusOr<bool> Read(int fd, Message* message) {
    return Read(fd, std::as_writable_bytes(std::span(message, 1)));
  }

 private:
  std::vector<std::byte> read_;  // bytes of the awaited message
};

// Writes a message in one piece. Requires that little was written before: a new connection accepts
// this amount at once.
Status WriteMessage(int fd, std::span<const std::byte> message);
template <typename Message>
Status WriteMessage(int fd, const Message& message) {
  return WriteMessage(fd, std::as_bytes(std::span(&message, 1)));
}

}  // namespace ds::comm
