#include "cli/remote/host_keys.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <vector>

#include "runtime/base/files.h"
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

// What one file says of the server. libssh asks two files at once and lets what the second does not
// say overrule what the first does; with the same file twice there is nothing to overrule. It skips
// lines with markers.
ssh_known_hosts_e Ask(ssh_session session, const std::string& file) {
  if (file.empty() || ::ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, file.c_str()) != SSH_OK ||
      ::ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, file.c_str()) != SSH_OK) {
    return SSH_KNOWN_HOSTS_NOT_FOUND;
  }
  return ::ssh_session_is_known_server(session);
}

// The lines of `text` that have the marker, without it: lines that libssh does not skip.
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

// What the lines of `text` with the marker say of the server.
StatusOr<ssh_known_hosts_e> AskMarked(ssh_session session, const std::string& text,
                                      std::string_view marker) {
  const std::string lines = MarkedLines(text, marker);
  if (lines.empty()) return SSH_KNOWN_HOSTS_NOT_FOUND;
  const UniqueFd file(::memfd_create("known_hosts", MFD_CLOEXEC));
  if (!file.valid()) return ErrnoError(errno, "memfd_create");
  DS_RETURN_IF_ERROR(WriteAll(file.get(), lines, "known_hosts"));
  return Ask(session, "/proc/self/fd/" + std::to_string(file.get()));
}

// Files that say whom the user and the system know, as OpenSSH looks for them.
std::vector<std::string> KnownHostsFiles(const SshSession& session) {
  std::vector<std::string> files;
  for (const ssh_options_e option : {SSH_OPTIONS_KNOWNHOSTS, SSH_OPTIONS_GLOBAL_KNOWNHOSTS}) {
    const std::string file = session.GetOption(option);
    if (file.empty()) continue;
    files.push_back(file);
    if (file.ends_with("known_hosts")) files.push_back(file + "2");
  }
  return files;
}

HostFailure Refusal(const SshSession& session, const std::string& why, const std::string& hint) {
  return {
      .kind = FailureKind::kHostKey,
      .message = session.place() + " shows the key " + Fingerprint(session.handle()) + ", " + why,
      .hint = hint};
}

HostFailure Changed(const SshSession& session, const std::string& file) {
  return Refusal(session, "but " + file + " holds another one for it",
                 "somebody may be in between. If the host was set up anew: ssh-keygen -f " + file +
                     " -R HOST");
}

HostFailure Unreadable(const Status& status) {
  return {.kind = FailureKind::kHostKey,
          .message = status.message(),
          .hint = "it may revoke the host's key, so it must be readable"};
}

// What the marked lines of the files say: a failure for a revoked key, else the file that names a
// certificate authority for the host, or "".
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
      return Refusal(session, "which " + file + " has revoked",
                     "whoever has that key is not to be trusted; the host needs a new one");
    }
    const auto certified = AskMarked(session.handle(), *text, kAuthority);
    if (!certified.ok()) return Unreadable(certified.status());
    const bool named =
        *certified != SSH_KNOWN_HOSTS_NOT_FOUND && *certified != SSH_KNOWN_HOSTS_UNKNOWN;
    if (named && authority.empty()) authority = file;
  }
  return authority;
}

// Whether a file knows the server by this key; a failure when one knows it by another.
HostResult<bool> IsKnown(const SshSession& session, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    switch (Ask(session.handle(), file)) {
      case SSH_KNOWN_HOSTS_OK:
        return true;
      case SSH_KNOWN_HOSTS_CHANGED:
      case SSH_KNOWN_HOSTS_OTHER:
        return Changed(session, file);
      case SSH_KNOWN_HOSTS_ERROR:
        return session.Broken(FailureKind::kHostKey, "looking at its host key");
      case SSH_KNOWN_HOSTS_NOT_FOUND:
      case SSH_KNOWN_HOSTS_UNKNOWN:
        break;
    }
  }
  return false;
}

// Appends a line to a file that may not exist, and may lack the end of its last line.
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
  std::vector<std::string> files = KnownHostsFiles(session);
  const std::string users_file = session.GetOption(SSH_OPTIONS_KNOWNHOSTS);
  const std::lock_guard lock(mutex_);
  const HostResult<std::string> authority = CheckMarkers(session, files);
  if (!authority.ok()) return authority;
  if (!target.host_keys.empty()) {
    const std::string shown = Fingerprint(session.handle());
    const auto& pinned = target.host_keys;
    if (std::find(pinned.begin(), pinned.end(), shown) != pinned.end()) return std::string();
    return Refusal(session, "but hostkey= in the hostfile names another one",
                   "somebody may be in between; or the host has several keys: name this one, too, "
                   "once you have seen it on the host (ssh-keygen -l)");
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
                   "name its key behind hostkey= in the hostfile, or put it into known_hosts");
  }
  if (session.refuses_unknown_hosts()) {
    return Refusal(session, "which is unknown, and StrictHostKeyChecking is on",
                   "connect once with 'ssh " + target.host +
                       "', or name its key behind hostkey= in the hostfile");
  }
  return Accept(session, users_file);
}

HostResult<std::string> HostKeys::Accept(const SshSession& session, const std::string& users_file) {
  char* entry = nullptr;
  if (::ssh_session_export_known_hosts_entry(session.handle(), &entry) != SSH_OK) {
    return session.Broken(FailureKind::kHostKey, "keeping its host key");
  }
  const std::string line(entry);
  ::ssh_string_free_char(entry);
  const Status kept = Remember(line, job_file_);
  if (!kept.ok()) {
    return HostFailure{.kind = FailureKind::kHostKey,
                       .message = kept.message(),
                       .hint = "the host's key must be kept in the run directory; see --run_dir"};
  }
  const Status remembered = Remember(line, users_file);
  const std::string shown = "its key " + Fingerprint(session.handle()) + " was unknown; it is ";
  if (remembered.ok()) return shown + "remembered in " + users_file;
  return shown + "remembered for this job only: " + remembered.message();
}

}  // namespace ds::cli
