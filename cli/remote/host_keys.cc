#include "cli/remote/host_keys.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <utility>

#include "cli/remote/host_key_policy.h"
#include "cli/remote/ssh_patterns.h"
#include "cli/remote/ssh_words.h"
#include "runtime/base/files.h"
#include "runtime/base/shell_quote.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {
namespace {

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

// Returns the host's key in the format of known_hosts; empty texts if libssh cannot tell.
HostKeys::ShownKey ReadKey(ssh_session session) {
  ssh_key key = nullptr;
  char* text = nullptr;
  HostKeys::ShownKey shown;
  if (::ssh_get_server_publickey(session, &key) != SSH_OK) return shown;
  shown.type = ::ssh_key_type_to_char(::ssh_key_type(key));
  if (::ssh_pki_export_pubkey_base64(key, &text) == SSH_OK) shown.base64 = text;
  ::ssh_string_free_char(text);
  ::ssh_key_free(key);
  return shown;
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

HostFailure Revoked(const SshSession& session, const std::string& file) {
  return Refusal(session, "which " + file + " has revoked",
                 "whoever has that key is not to be trusted; the host needs a new one");
}

// Appends a line to a file, which may be missing or lack a newline at its end.
Status Remember(const std::string& line, const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::create_directory(path.parent_path(), ignored)) {
    std::filesystem::permissions(path.parent_path(), std::filesystem::perms::owner_all, ignored);
  }
  char last = '\n';
  if (const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); fd.valid()) {
    const off_t size = ::lseek(fd.get(), 0, SEEK_END);
    if (size > 0 && ::pread(fd.get(), &last, 1, size - 1) != 1)
      return ErrnoError(errno, path.string());
  }
  DS_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  return file.Append((last == '\n' ? "" : "\n") + line);
}

const HostKeyEntries::Entry* FindMarked(const HostKeyEntries& known, KnownHosts::Marker marker) {
  for (const auto& entry : known.entries) {
    if (entry.key.marker == marker) return &entry;
  }
  return nullptr;
}

HostOutcome CheckRevoked(const SshSession& session, const HostKeyEntries& known,
                         const std::string& key) {
  if (known.revoked != nullptr && known.revoked->contains(key)) {
    return Revoked(session, session.host_keys().revoked_keys);
  }
  for (const auto& entry : known.entries) {
    if (entry.key.marker == KnownHosts::Marker::kRevoked && entry.key.base64 == key) {
      return Revoked(session, entry.file);
    }
  }
  return HostOutcome();
}

// Returns true if a file has this key for the host. Fails if the files only have others for it.
HostResult<bool> IsKnown(const SshSession& session, const HostKeyEntries& known,
                         const std::string& key) {
  const HostKeyEntries::Entry* other = nullptr;
  for (const auto& entry : known.entries) {
    if (entry.key.marker != KnownHosts::Marker::kNone) continue;
    if (entry.key.base64 == key) return true;
    if (other == nullptr) other = &entry;
  }
  if (other != nullptr) return Changed(session, other->file);
  return std::any_of(known.without_port.begin(), known.without_port.end(),
                     [&](const auto& entry) { return entry.key.base64 == key; });
}

HostOutcome CheckPinned(const SshSession& session, const std::vector<std::string>& pinned) {
  const std::string shown = Fingerprint(session.handle());
  if (std::find(pinned.begin(), pinned.end(), shown) != pinned.end()) return HostOutcome();
  return Refusal(session, "but hostkey= in the hostfile names another one",
                 "this may be a man-in-the-middle attack; or the host has several keys: add this "
                 "one, too, after you have compared it on the host (ssh-keygen -l)");
}

}  // namespace

std::string HostKeyEntries::PreferredLines() const {
  std::string lines;
  for (const Entry& entry : entries) {
    if (entry.key.marker != KnownHosts::Marker::kNone) continue;
    lines += "* " + entry.key.type + " " + entry.key.base64 + "\n";
  }
  return lines;
}

HostKeys::RevokedKeys::RevokedKeys(const std::string& text) : binary(text.starts_with("SSHKRL")) {
  std::istringstream stream(text);
  for (std::string word; !binary && stream >> word;) words.insert(word);
}

HostKeys::HostKeys(std::filesystem::path job_file)
    : job_file_(std::move(job_file)),
      known_hosts_(kMaxKnownHostsBytes),
      revoked_keys_(kMaxKnownHostsBytes) {}

HostResult<HostKeyEntries> HostKeys::Find(const HostKeyPolicy& policy) {
  HostKeyEntries found;
  std::vector<std::string> files = policy.users_files;
  files.insert(files.end(), policy.systems_files.begin(), policy.systems_files.end());
  files.push_back(job_file_.string());
  std::vector<std::pair<std::string, const KnownHosts*>> read;
  for (const std::string& path : files) {
    const StatusOr<const KnownHosts*> file = known_hosts_.Get(path);
    if (!file.ok() && file.status().code() == StatusCode::kNotFound) continue;
    if (!file.ok()) return Unreadable(file.status());
    read.emplace_back(path, *file);
    for (KnownHosts::Key& key : (*file)->Find(policy.known_name, policy.known_port)) {
      found.entries.push_back({path, std::move(key)});
    }
  }
  const bool known = FindMarked(found, KnownHosts::Marker::kNone) != nullptr;
  for (const auto& [path, file] : read) {
    if (known || policy.known_port == kSshPort) break;
    for (KnownHosts::Key& key : file->Find(policy.known_name, kSshPort)) {
      if (key.marker != KnownHosts::Marker::kNone) continue;
      found.without_port.push_back({path, std::move(key)});
    }
  }
  const HostOutcome revoked = FindRevokedKeys(policy, &found);
  if (!revoked.ok()) return revoked.failure();
  return found;
}

HostOutcome HostKeys::FindRevokedKeys(const HostKeyPolicy& policy, HostKeyEntries* found) {
  if (policy.revoked_keys.empty()) return HostOutcome();
  // As with OpenSSH, an unreadable file revokes all keys.
  const StatusOr<const RevokedKeys*> revoked = revoked_keys_.Get(policy.revoked_keys);
  if (!revoked.ok()) return Unreadable(revoked.status());
  if ((*revoked)->binary) {
    return HostFailure{
        .kind = FailureKind::kHostKey,
        .message = "RevokedHostKeys " + policy.revoked_keys +
                   " is a binary list, which the built-in SSH cannot read",
        .hint = "name a file of public keys, or leave it to OpenSSH with --launcher ssh-client"};
  }
  found->revoked = &(*revoked)->words;
  return HostOutcome();
}

HostResult<std::string> HostKeys::Check(const SshSession& session, const RemoteTarget& target,
                                        const HostKeyEntries& known) {
  const ShownKey shown = ReadKey(session.handle());
  const HostOutcome revoked = CheckRevoked(session, known, shown.base64);
  if (!revoked.ok()) return revoked.failure();
  if (!target.host_keys.empty()) {
    const HostOutcome pinned = CheckPinned(session, target.host_keys);
    return pinned.ok() ? HostResult<std::string>(std::string()) : pinned.failure();
  }
  const HostResult<bool> is_known = IsKnown(session, known, shown.base64);
  if (!is_known.ok()) return is_known.failure();
  if (*is_known) return std::string();
  if (const auto* authority = FindMarked(known, KnownHosts::Marker::kAuthority)) {
    return Refusal(session,
                   "which is unknown; " + authority->file +
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
  return Accept(session, shown);
}

HostResult<std::string> HostKeys::Accept(const SshSession& session, const ShownKey& shown) {
  const HostKeyPolicy& policy = session.host_keys();
  const std::string name = Lowered(KnownHostName(policy.known_name, policy.known_port));
  {
    const std::lock_guard lock(mutex_);
    const auto [accepted, is_new] = accepted_.emplace(name, shown.base64);
    // Two lines of the hostfile, or two hosts with one HostKeyAlias.
    if (!is_new && accepted->second != shown.base64) return Changed(session, job_file_.string());
    if (!is_new) return std::string();
  }
  const std::string key = " " + shown.type + " " + shown.base64 + "\n";
  const Status kept = Remember(name + key, job_file_);
  if (!kept.ok()) {
    return HostFailure{.kind = FailureKind::kHostKey,
                       .message = kept.message(),
                       .hint = "the host's key must be kept in the run directory; see --run_dir"};
  }
  const std::string text = "its key " + Fingerprint(session.handle()) + " was unknown; it is ";
  if (policy.users_files.empty()) return text + "remembered for this job only";
  const std::string& file = policy.users_files.front();
  const Status remembered =
      Remember((policy.hashes_names ? HashKnownHostName(name) : name) + key, file);
  if (remembered.ok()) return text + "remembered in " + file;
  return text + "remembered for this job only: " + remembered.message();
}

}  // namespace ds::cli
