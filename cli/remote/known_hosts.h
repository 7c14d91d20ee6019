#pragma once

// KnownHosts is the content of one known_hosts file (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT), parsed
// once for all hosts of a job. A line is "[@MARKER] NAMES TYPE KEY [COMMENT]". NAMES are patterns
// with commas between them, or one hashed name, "|1|SALT|HMAC-SHA1". A port other than 22 is part
// of the name: "[host]:2222". Case does not count. Lines that cannot be understood are skipped, as
// OpenSSH does.
//
// A search looks plain names up in a table, and computes one HMAC for each hashed name.
//
// Immutable, so thread-safe.

#include <openssl/sha.h>

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ds::cli {

// Returns the name of a host in known_hosts: "host", or "[host]:port" with a port other than 22.
std::string KnownHostName(const std::string& host, int port);

// Returns "|1|SALT|HMAC-SHA1" for a name, with a random salt.
std::string HashKnownHostName(const std::string& name);

class KnownHosts {
 public:
  enum class Marker { kNone, kRevoked, kAuthority };
  struct Key {
    Marker marker = Marker::kNone;
    std::string type;    // "ssh-ed25519"
    std::string base64;  // the public key
  };

  explicit KnownHosts(std::string text);
  KnownHosts(const KnownHosts&) = delete;  // lines refer to the text
  KnownHosts& operator=(const KnownHosts&) = delete;

  // Returns the keys of the lines that name the host, in the order of the file.
  std::vector<Key> Find(const std::string& host, int port) const;

 private:
  struct Line {
    Marker marker;
    std::string_view type;
    std::string_view base64;
  };
  // A list that is not only plain names.
  struct Patterns {
    std::size_t line;
    std::vector<std::string> patterns;
  };
  struct Hashed {
    std::size_t line;
    SHA_CTX inner, outer;  // of HMAC, after the salt
    std::array<unsigned char, SHA_DIGEST_LENGTH> hash;
  };

  void AddLine(std::string_view text);
  bool AddNames(std::string_view names);
  bool AddHashedName(std::string_view name);

  const std::string text_;
  std::vector<Line> lines_;
  std::unordered_map<std::string, std::vector<std::size_t>> plain_;  // lines by name
  std::vector<Patterns> patterns_;
  std::vector<Hashed> hashed_;
};

}  // namespace ds::cli
