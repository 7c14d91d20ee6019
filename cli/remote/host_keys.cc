#include "cli/remote/host_keys.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <sstream>
#include <vector>

#include "cli/remote/host_key_policy.h"
#include "cli/remote/ssh_words.h"
#include "runtime/base/files.h"
#include "runtime/base/shell_quote.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {
namespace {

constexpr std::string_view kRevoked = "@revoked";
constexpr std::string_view kAuthority = "@cert-authority";
constexpr std::uint64_t kMaxKnownHostsBytes = std::uint64_t{64} << 20;

std::string Fingerprint(ssh_session session) {
  ssh_key key = nullptr;
  unsigned char* hash = nullptr;
  std::size_t size = 0;
  std::string text;
  if (::ssh_get_server_publickey(session, &key) != SSH_OK) return text;
  if (::ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) == 0) {
    char* readable = ::ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size);
    if (readable != nullptr) text = readable;
    ::ssh_string_free_char(readable);
    ::ssh_clean_pubkey_hash(&hash);
  }
  ::ssh_key_free(key);
  return text;
}

// Looks the server up in one file. libssh always reads two files, and "not found" in the second
// overrides a match in the first; both are therefore this file. libssh skips lines with markers.
ssh_known_hosts_e Ask(ssh_session session, const std::string& file) {
  if (file.empty() || ::ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, file.c_str()) != SSH_OK ||
      ::ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, file.c_str()) != SSH_OK) {
    return SSH_KNOWN_HOSTS_NOT_FOUND;
  }
  return ::ssh_session_is_known_server(session);
}

// Returns the lines of `text` that have the marker. They are returned without it, because libssh
// skips lines with markers.
std::string MarkedLines(const std::string& text, std::string_view marker) {
  std::string marked;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    if (!(words >> first) || first != marker) continue;
    marked += line.substr(line.find(marker) + marker.size()) + "\n";
  }
  return marked;
}

// Looks the server up in the lines of `text` with the marker.
StatusOr<ssh_known_hosts_e> AskMarked(ssh_session session, const std::string& text,
                                      std::string_view marker) {
  const std::string lines = MarkedLines(text, marker);
  if (lines.empty()) return SSH_KNOWN_HOSTS_NOT_FOUND;
  const UniqueFd file(::memfd_create("known_hosts", MFD_CLOEXEC));
  if (!file.valid()) return ErrnoError(errno, "memfd_create");
  DS_RETURN_IF_ERROR(WriteAll(file.get(), lines, "known_hosts"));
  return Ask(session, "/proc/self/fd/" + std::to_string(file.get()));
}

// Returns the known_hosts files of the user and of the system.
std::vector<std::string> KnownHostsFiles(const HostKeyPolicy& policy) {
  std::vector<std::string> files = policy.users_files;
  files.insert(files.end(), policy.systems_files.begin(), policy.systems_files.end());
  return files;
}

HostFailure Refusal(const SshSession& session, const std::string& why, const std::string& hint) {
  return {
      .kind = FailureKind::kHostKey,
      .message = session.place() + " shows the key " + Fingerprint(session.handle()) + ", " + why,
      .hint = hint};
}

HostFailure Changed(const SshSession& session, const std::string& file) {
  return Refusal(
      session, "but " + file + " holds another one for it",
      "this may be a man-in-the-middle attack. If the host was reinstalled: ssh-keygen -f " +
          ShellQuote(file) + " -R HOST");
}

HostFailure Unreadable(const Status& status) {
  return {.kind = FailureKind::kHostKey,
          .message = status.message(),
          .hint = "it may revoke the host's key, so it must be readable"};
}

// Returns the host's key in the format of known_hosts: "AAAAC3Nz...".
std::string Base64Key(ssh_session session) {
  ssh_key key = nullptr;
  char* text = nullptr;
  std::string base64;
  if (::ssh_get_server_publickey(session, &key) != SSH_OK) return base64;
  if (::ssh_pki_export_pubkey_base64(key, &text) == SSH_OK) base64 = text;
  ::ssh_string_free_char(text);
  ::ssh_key_free(key);
  return base64;
}

HostFailure Revoked(const SshSession& session, const std::string& file) {
  return Refusal(session, "which " + file + " has revoked",
                 "whoever has that key is not to be trusted; the host needs a new one");
}

// RevokedHostKeys names a file with one public key per line. As with OpenSSH, an unreadable file
// revokes all keys.
HostOutcome CheckRevoked(const SshSession& session) {
  const std::string& file = session.host_keys().revoked_keys;
  if (file.empty()) return HostOutcome();
  const StatusOr<std::string> text = ReadFile(file, kMaxKnownHostsBytes);
  if (!text.ok()) return Unreadable(text.status());
  if (text->starts_with("SSHKRL")) {
    return HostFailure{.kind = FailureKind::kHostKey,
                       .message = "RevokedHostKeys " + file +
                                  " is a binary list, which the built-in SSH cannot read",
                       .hint =
                           "name a file of public keys, or leave it to OpenSSH with "
                           "--launcher ssh-client"};
  }
  const std::string key = Base64Key(session.handle());
  std::istringstream words(*text);
  for (std::string word; words >> word;) {
    if (word == key) return Revoked(session, file);
  }
  return HostOutcome();
}

// Looks the server up in the marked lines of the files. Fails for a revoked key. Otherwise returns
// the first file that names a certificate authority for the host, or "".
HostResult<std::string> CheckMarkers(const SshSession& session,
                                     const std::vector<std::string>& files) {
  std::string authority;
  for (const std::string& file : files) {
    const StatusOr<std::string> text = ReadFile(file, kMaxKnownHostsBytes);
    if (!text.ok() && text.status().code() == StatusCode::kNotFound) continue;
    if (!text.ok()) return Unreadable(text.status());
    const auto revoked = AskMarked(session.handle(), *text, kRevoked);
    if (!revoked.ok()) return Unreadable(revoked.status());
    if (*revoked == SSH_KNOWN_HOSTS_OK) {
      return Revoked(session, file);
    }
    const auto certified = AskMarked(session.handle(), *text, kAuthority);
    if (!certified.ok()) return Unreadable(certified.status());
    const bool named =
        *certified != SSH_KNOWN_HOSTS_NOT_FOUND && *certified != SSH_KNOWN_HOSTS_UNKNOWN;
    if (named && authority.empty()) authority = file;
  }
  return authority;
}

// Returns true if a file has this key for the server. Fails if a file has another key for it.
HostResult<bool> IsKnown(const SshSession& session, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    switch (Ask(session.handle(), file)) {
      case SSH_KNOWN_HOSTS_OK:
        return true;
      case SSH_KNOWN_HOSTS_CHANGED:
      case SSH_KNOWN_HOSTS_OTHER:
        return Changed(session, file);
      case SSH_KNOWN_HOSTS_ERROR:
        return session.DescribeBreak(FailureKind::kHostKey, "looking at its host key");
      case SSH_KNOWN_HOSTS_NOT_FOUND:
      case SSH_KNOWN_HOSTS_UNKNOWN:
        break;
    }
  }
  return false;
}

std::string Base64(std::span<const unsigned char> bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

// Replaces the first word of a line of known_hosts, the host's name, by "|1|SALT|HMAC-SHA1".
std::string WithHashedName(const std::string& line) {
  const std::size_t end = line.find(' ');
  std::array<unsigned char, 20> salt{};
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  DS_CHECK_MSG(::RAND_bytes(salt.data(), static_cast<int>(salt.size())) == 1, "no random bytes");
  DS_CHECK_MSG(::HMAC(::EVP_sha1(), salt.data(), static_cast<int>(salt.size()),
                      reinterpret_cast<const unsigned char*>(line.data()), end, hash.data(),
                      &size) != nullptr,
               "HMAC-SHA1 is not available");
  return "|1|" + Base64(salt) + "|" + Base64({hash.data(), size}) + line.substr(end);
}

// Appends a line to a file, which may be missing or lack a newline at its end.
Status Remember(const std::string& line, const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::create_directory(path.parent_path(), ignored)) {
    std::filesystem::permissions(path.parent_path(), std::filesystem::perms::owner_all, ignored);
  }
  const StatusOr<std::string> text = ReadFile(path, kMaxKnownHostsBytes);
  const bool unfinished = text.ok() && !text->empty() && text->back() != '\n';
  DS_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  return file.Append((unfinished ? "\n" : "") + line);
}

}  // namespace

HostResult<std::string> HostKeys::Check(const SshSession& session, const RemoteTarget& target) {
  std::vector<std::string> files = KnownHostsFiles(session.host_keys());
  session.attempt()->Enter({"reading the files of known hosts", "does their file system hang?"});
  const std::lock_guard lock(mutex_);
  const HostOutcome revoked = CheckRevoked(session);
  if (!revoked.ok()) return revoked.failure();
  const HostResult<std::string> authority = CheckMarkers(session, files);
  if (!authority.ok()) return authority;
  if (!target.host_keys.empty()) {
    const std::string shown = Fingerprint(session.handle());
    const auto& pinned = target.host_keys;
    if (std::find(pinned.begin(), pinned.end(), shown) != pinned.end()) return std::string();
    return Refusal(session, "but hostkey= in the hostfile names another one",
                   "this may be a man-in-the-middle attack; or the host has several keys: add this "
                   "one, too, after you have compared it on the host (ssh-keygen -l)");
  }
  files.push_back(job_file_.string());
  const HostResult<bool> known = IsKnown(session, files);
  if (!known.ok()) return known.failure();
  if (*known) return std::string();
  if (!authority->empty()) {
    return Refusal(session,
                   "which is unknown; " + *authority +
                       " trusts a @cert-authority for it, and the built-in SSH cannot "
                       "check certificates",
                   "--launcher ssh-client has OpenSSH check them; or name its key by hostkey= in "
                   "the hostfile, or put it into known_hosts");
  }
  if (session.host_keys().refuses_unknown_hosts) {
    return Refusal(session, "which is unknown, and StrictHostKeyChecking is on",
                   HintFor("connect once with 'ssh HOST', or name its key by hostkey= in the "
                           "hostfile",
                           target.host));
  }
  return Accept(session);
}

HostResult<std::string> HostKeys::Accept(const SshSession& session) {
  char* entry = nullptr;
  if (::ssh_session_export_known_hosts_entry(session.handle(), &entry) != SSH_OK) {
    return session.DescribeBreak(FailureKind::kHostKey, "keeping its host key");
  }
  const std::string line(entry);
  ::ssh_string_free_char(entry);
  const Status kept = Remember(line, job_file_);
  if (!kept.ok()) {
    return HostFailure{.kind = FailureKind::kHostKey,
                       .message = kept.message(),
                       .hint = "the host's key must be kept in the run directory; see --run_dir"};
  }
  const std::string shown = "its key " + Fingerprint(session.handle()) + " was unknown; it is ";
  const HostKeyPolicy& policy = session.host_keys();
  if (policy.users_files.empty()) return shown + "remembered for this job only";
  const std::string& file = policy.users_files.front();
  const Status remembered = Remember(policy.hashes_names ? WithHashedName(line) : line, file);
  if (remembered.ok()) return shown + "remembered in " + file;
  return shown + "remembered for this job only: " + remembered.message();
}

}  // namespace ds::cli
