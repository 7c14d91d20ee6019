#pragma once

// HostKeys verifies the keys of hosts. A host must present the key that its line of the hostfile
// pins; without one, a key in the user's or the system's known_hosts. A key marked @revoked there
// is always rejected. A host with a @cert-authority must also be known by its key, because libssh
// cannot verify a host's certificate. An unknown host is accepted, unless ssh_config has
// StrictHostKeyChecking yes (or ask), and its key is added to the user's known_hosts and to a file
// of the job; from then on it must present that key. This check cannot be disabled. It honours
// UserKnownHostsFile, GlobalKnownHostsFile, HostKeyAlias, HashKnownHosts and RevokedHostKeys of
// ssh_config.
//
// Each file is read once. Keys that are added later, here or by others, do not change what was
// read.
//
// Thread-safe. Files are read and written without a lock.

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "cli/remote/known_hosts.h"
#include "cli/remote/read_once.h"
#include "cli/remote/ssh_session.h"

namespace ds::cli {

// The entries about one host in the files of its HostKeyPolicy.
struct HostKeyEntries {
  struct Entry {
    std::string file;
    KnownHosts::Key key;
  };
  std::vector<Entry> entries;
  // Without an entry for the host's port: those for its plain name. OpenSSH accepts their keys,
  // too.
  std::vector<Entry> without_port;
  // The keys of RevokedHostKeys, as in known_hosts; null = none.
  const std::unordered_set<std::string>* revoked = nullptr;

  // Returns lines for libssh, which requests a type of key that is known for the host.
  std::string PreferredLines() const;
};

class HostKeys {
 public:
  // The key that a host presents, as in known_hosts.
  struct ShownKey {
    std::string type;
    std::string base64;
  };

  // `job_file` is created when the first unknown host is accepted.
  explicit HostKeys(std::filesystem::path job_file);

  // Looks a host up. Fails if a file cannot be read, because it might revoke the host's key.
  HostResult<HostKeyEntries> Find(const HostKeyPolicy& policy);
  // Call it between Connect and Authenticate. Returns a notice for the user; "" = none.
  HostResult<std::string> Check(const SshSession& session, const RemoteTarget& target,
                                const HostKeyEntries& known);

 private:
  // A file of public keys, one per line.
  struct RevokedKeys {
    explicit RevokedKeys(const std::string& text);
    bool binary;  // a key revocation list of OpenSSH
    std::unordered_set<std::string> words;
  };

  HostOutcome FindRevokedKeys(const HostKeyPolicy& policy, HostKeyEntries* found);
  HostResult<std::string> Accept(const SshSession& session, const ShownKey& shown);

  const std::filesystem::path job_file_;
  ReadOnce<KnownHosts> known_hosts_;
  ReadOnce<RevokedKeys> revoked_keys_;
  std::mutex mutex_;
  std::map<std::string, std::string> accepted_;  // guarded by mutex_: keys by name
};

}  // namespace ds::cli
