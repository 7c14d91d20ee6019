// The digest functions below are deprecated in OpenSSL 3 in favour of EVP_MAC. That takes twice as
// long for each of the hashed names, because it cannot keep the state after the salt.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "cli/remote/known_hosts.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "cli/remote/dial.h"
#include "cli/remote/ssh_patterns.h"
#include "runtime/base/check.h"

namespace ds::cli {
namespace {

constexpr std::string_view kHashPrefix = "|1|";

using Digest = std::array<unsigned char, SHA_DIGEST_LENGTH>;

struct HmacState {
  SHA_CTX inner, outer;
};

// HMAC-SHA1 (RFC 2104) with a key of at most one block.
HmacState StartHmac(std::span<const unsigned char> key) {
  std::array<unsigned char, SHA_CBLOCK> inner{};
  std::copy(key.begin(), key.end(), inner.begin());
  std::array<unsigned char, SHA_CBLOCK> outer = inner;
  for (unsigned char& byte : inner) byte ^= 0x36;
  for (unsigned char& byte : outer) byte ^= 0x5c;
  HmacState state{};
  ::SHA1_Init(&state.inner);
  ::SHA1_Update(&state.inner, inner.data(), inner.size());
  ::SHA1_Init(&state.outer);
  ::SHA1_Update(&state.outer, outer.data(), outer.size());
  return state;
}

Digest FinishHmac(SHA_CTX inner, SHA_CTX outer, std::string_view text) {
  Digest digest{};
  ::SHA1_Update(&inner, text.data(), text.size());
  ::SHA1_Final(digest.data(), &inner);
  ::SHA1_Update(&outer, digest.data(), digest.size());
  ::SHA1_Final(digest.data(), &outer);
  return digest;
}

std::string Base64(std::span<const unsigned char> bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<std::vector<unsigned char>> DecodeBase64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::vector<unsigned char> bytes(text.size() / 4 * 3);
  const int size =
      ::EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                        static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  // EVP_DecodeBlock counts the padding.
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<std::size_t>(size) - padding);
  return bytes;
}

// A public key begins with the length and the name of its type.
bool IsKeyOfType(std::string_view base64, std::string_view type) {
  const auto key = DecodeBase64(base64);
  if (!key || key->size() < 4 + type.size()) return false;
  const std::size_t size = ((*key)[0] << 24U) | ((*key)[1] << 16U) | ((*key)[2] << 8U) | (*key)[3];
  return size == type.size() && std::equal(type.begin(), type.end(), key->begin() + 4);
}

// Returns true if a pattern matches, and no pattern that is negated with "!". Patterns with a port
// are compared with the host's name with its port.
bool Names(const std::vector<std::string>& patterns, std::string_view name,
           std::string_view with_port) {
  bool found = false;
  for (std::string_view pattern : patterns) {
    const bool negated = pattern.starts_with('!');
    pattern.remove_prefix(negated ? 1 : 0);
    if (!MatchesPattern(pattern.starts_with('[') ? with_port : name, pattern)) continue;
    if (negated) return false;
    found = true;
  }
  return found;
}

// Removes the first word of `text`, and returns it.
std::string_view TakeWord(std::string_view* text) {
  constexpr std::string_view kBlanks = " \t\r";
  text->remove_prefix(std::min(text->find_first_not_of(kBlanks), text->size()));
  const std::string_view word = text->substr(0, text->find_first_of(kBlanks));
  text->remove_prefix(word.size());
  return word;
}

}  // namespace

std::string KnownHostName(const std::string& host, int port) {
  return port == kSshPort ? host : "[" + host + "]:" + std::to_string(port);
}

std::string HashKnownHostName(const std::string& name) {
  Digest salt{};
  DS_CHECK_MSG(::RAND_bytes(salt.data(), static_cast<int>(salt.size())) == 1, "no random bytes");
  const HmacState state = StartHmac(salt);
  return std::string(kHashPrefix) + Base64(salt) + "|" +
         Base64(FinishHmac(state.inner, state.outer, Lowered(name)));
}

KnownHosts::KnownHosts(std::string text) : text_(std::move(text)) {
  std::string_view left = text_;
  while (!left.empty()) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    AddLine(line);
  }
}

void KnownHosts::AddLine(std::string_view text) {
  Line line{};
  std::string_view names = TakeWord(&text);
  if (names.empty() || names.starts_with('#')) return;
  if (names.starts_with('@')) {
    if (names != "@revoked" && names != "@cert-authority") return;
    line.marker = names == "@revoked" ? Marker::kRevoked : Marker::kAuthority;
    names = TakeWord(&text);
  }
  line.type = TakeWord(&text);
  line.base64 = TakeWord(&text);
  if (!line.base64.empty() && AddNames(names)) lines_.push_back(line);
}

// Files the names under the number of the next line.
bool KnownHosts::AddNames(std::string_view names) {
  if (names.starts_with('|')) return AddHashedName(names);
  std::vector<std::string> list = SplitCommas(Lowered(names));
  if (names.find_first_of("*?!") == names.npos) {
    for (const std::string& name : list) plain_[name].push_back(lines_.size());
  } else {
    patterns_.push_back({lines_.size(), std::move(list)});
  }
  return true;
}

bool KnownHosts::AddHashedName(std::string_view name) {
  if (!name.starts_with(kHashPrefix)) return false;
  name.remove_prefix(kHashPrefix.size());
  const std::size_t bar = std::min(name.find('|'), name.size() - 1);
  const auto salt = DecodeBase64(name.substr(0, bar));
  const auto hash = DecodeBase64(name.substr(bar + 1));
  if (!salt || salt->size() > SHA_CBLOCK || !hash || hash->size() != SHA_DIGEST_LENGTH) {
    return false;
  }
  const HmacState state = StartHmac(*salt);
  Hashed hashed{.line = lines_.size(), .inner = state.inner, .outer = state.outer, .hash = {}};
  std::copy(hash->begin(), hash->end(), hashed.hash.begin());
  hashed_.push_back(hashed);
  return true;
}

std::vector<KnownHosts::Key> KnownHosts::Find(const std::string& host, int port) const {
  const std::string name = Lowered(KnownHostName(host, port));
  // With the default port, too, a line may have the form with a port. It is never hashed.
  const std::string with_port = Lowered("[" + host + "]:" + std::to_string(port));
  std::vector<std::size_t> found;
  for (const std::string& each : {name, with_port}) {
    const auto lines = plain_.find(each);
    if (lines != plain_.end())
      found.insert(found.end(), lines->second.begin(), lines->second.end());
  }
  for (const Patterns& each : patterns_) {
    if (Names(each.patterns, name, with_port)) found.push_back(each.line);
  }
  for (const Hashed& each : hashed_) {
    if (FinishHmac(each.inner, each.outer, name) == each.hash) found.push_back(each.line);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::vector<Key> keys;
  for (const std::size_t number : found) {
    const Line& line = lines_[number];
    if (!IsKeyOfType(line.base64, line.type)) continue;
    keys.push_back({line.marker, std::string(line.type), std::string(line.base64)});
  }
  return keys;
}

}  // namespace ds::cli
