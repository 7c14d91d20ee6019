#pragma once

// HostKeys: whom we talk to. A host must show the key that its line of the hostfile pins, else the
// one that the user's or the system's known_hosts hold. A key that they mark @revoked is refused
// always; a host for which they name a @cert-authority must be known by its key as well, since
// libssh cannot check a host's certificate. A host nobody knows is accepted, unless ssh_config says
// StrictHostKeyChecking yes (or ask), and its key remembered in the user's known_hosts and in a
// file of the job; from then on it must show that one. There is no way to switch this off.
// UserKnownHostsFile, GlobalKnownHostsFile, HostKeyAlias, HashKnownHosts and RevokedHostKeys of
// ssh_config count.
//
// Threads: all members from any thread.

#include <filesystem>
#include <mutex>
#include <string>

#include "cli/remote/ssh_session.h"

namespace ds::cli {

class HostKeys {
 public:
  // `job_file` is made when the first unknown host is accepted.
  explicit HostKeys(std::filesystem::path job_file) : job_file_(std::move(job_file)) {}

  // Between Connect and Authenticate. Returns what the user should hear of; "" when there is
  // nothing.
  HostResult<std::string> Check(const SshSession& session, const RemoteTarget& target);

 private:
  HostResult<std::string> Accept(const SshSession& session);

  const std::filesystem::path job_file_;
  std::mutex mutex_;  // of the files
};

}  // namespace ds::cli
