#include "cli/remote/host_keys.h"

#include "runtime/base/files.h"

namespace ds::cli {
namespace {

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
// say overrule what the first does; with the same file twice there is nothing to overrule.
ssh_known_hosts_e Ask(ssh_session session, const std::string& file) {
  if (file.empty() || ::ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, file.c_str()) != SSH_OK ||
      ::ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, file.c_str()) != SSH_OK) {
    return SSH_KNOWN_HOSTS_NOT_FOUND;
  }
  return ::ssh_session_is_known_server(session);
}

HostFailure Changed(const SshSession& session, const std::string& file) {
  return {.kind = FailureKind::kHostKey,
          .message = session.place() + " shows the key " + Fingerprint(session.handle()) +
                     ", but " + file + " holds another one for it",
          .hint = "somebody may be in between. If the host was set up anew: ssh-keygen -f " + file +
                  " -R HOST"};
}

}  // namespace

HostOutcome HostKeys::Check(const SshSession& session) {
  const ssh_session handle = session.handle();
  const std::string users = session.GetOption(SSH_OPTIONS_KNOWNHOSTS);
  const std::string systems = session.GetOption(SSH_OPTIONS_GLOBAL_KNOWNHOSTS);
  const std::lock_guard lock(mutex_);
  for (const std::string& file : {users, systems, job_file_.string()}) {
    switch (Ask(handle, file)) {
      case SSH_KNOWN_HOSTS_OK:
        return HostOutcome();
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
  char* entry = nullptr;
  if (::ssh_session_export_known_hosts_entry(handle, &entry) != SSH_OK) {
    return session.Broken(FailureKind::kHostKey, "keeping its host key");
  }
  const std::string line(entry);
  ::ssh_string_free_char(entry);
  StatusOr<AppendFile> file = AppendFile::Open(job_file_);
  Status status = file.ok() ? file->Append(line) : file.status();
  if (status.ok()) return HostOutcome();
  return HostFailure{.kind = FailureKind::kHostKey,
                     .message = status.message(),
                     .hint = "the host's key must be kept in the run directory; see --run_dir"};
}

}  // namespace ds::cli
