#include "runtime/comm/net/peer_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/check.h"

namespace ds::comm {
namespace {

void Append(std::uint32_t number, std::string* text) {
  for (int shift = 0; shift < 32; shift += 8) text->push_back(static_cast<char>(number >> shift));
}

// Returns the HMAC-SHA256 over a purpose and the introduction.
Proof Sign(const std::string& key, std::string text, const Introduction& introduction) {
  Append(introduction.from, &text);
  Append(introduction.to, &text);
  Append(introduction.rail, &text);
  text.append(introduction.from_nonce.begin(), introduction.from_nonce.end());
  text.append(introduction.to_nonce.begin(), introduction.to_nonce.end());
  Proof proof;
  unsigned int size = 0;
  DS_CHECK(::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                  reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(),
                  &size) != nullptr &&
           size == proof.size());
  return proof;
}

}  // namespace

StatusOr<Nonce> MakeNonce() {
  Nonce nonce;
  if (::RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1) {
    return InternalError("the machine gives no random bytes");
  }
  return nonce;
}

Proof MakeProof(const std::string& key, const Introduction& introduction, bool of_called) {
  return Sign(key, of_called ? "dsrun rank link: called" : "dsrun rank link: caller", introduction);
}

bool IsProof(const std::string& key, const Introduction& introduction, bool of_called,
             const Proof& shown) {
  const Proof expected = MakeProof(key, introduction, of_called);
  return ::CRYPTO_memcmp(expected.data(), shown.data(), shown.size()) == 0;
}

std::string MakeSecret(const std::string& key, const Introduction& introduction) {
  const Proof secret = Sign(key, "dsrun rank link: TLS", introduction);
  return {secret.begin(), secret.end()};
}

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
  return written < 0 ? ErrnoError(errno, "writing") : UnavailableError("it does not accept bytes");
}

}  // namespace ds::comm
