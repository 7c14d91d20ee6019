#pragma once

// Two ranks prove to each other that they are of one job, over a connection that anybody may have
// made: each has the job's key, and shows it by an HMAC-SHA256 over who they are and random bytes
// that both have just drawn. The key itself is never sent. Pure but for MakeNonce.

#include <array>
#include <cstdint>
#include <string>

#include "runtime/base/status.h"

namespace ds::comm {

using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;

// Names the two ends and one attempt of theirs; a proof is of one such.
struct Introduction {
  std::uint32_t from = 0;  // the rank that has connected
  std::uint32_t to = 0;    // the rank that was called
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

}  // namespace ds::comm
