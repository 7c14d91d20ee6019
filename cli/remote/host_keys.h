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
// Thread-safe.

#include <filesystem>
#include <mutex>
#include <string>

#include "cli/remote/ssh_session.h"

namespace ds::cli {

class HostKeys {
 public:
  // `job_file` is created when the first unknown host is accepted.
  explicit HostKeys(std::filesystem::path job_file) : job_file_(std::move(job_file)) {}

  // Call it between Connect and Authenticate. Returns a notice for the user; "" = none.
  HostResult<std::string> Check(const SshSession& session, const RemoteTarget& target);

 private:
  HostResult<std::string> Accept(const SshSession& session);

  const std::filesystem::path job_file_;
  std::mutex mutex_;  // guards the files
};

}  // namespace ds::cli
