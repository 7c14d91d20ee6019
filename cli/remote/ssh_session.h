#pragma once

// SshSession is an authenticated SSH connection to one host, over libssh.
//
// Call Configure, HostKeys::Find (host_keys.h), Connect, HostKeys::Check and Authenticate, in this
// order; then run commands and copy files. Every call blocks until it is done, its deadline passes
// or the interrupter ends it. The hostfile overrides ssh_config. Passwords are never asked for.
//
// Not thread-safe; separate sessions share nothing. The attempt must outlive the session, or
// KeepOpen must be called before it ends.

#include <libssh/libssh.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/remote/dial.h"
#include "cli/remote/host_attempt.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/host_key_policy.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/proxy_command.h"
#include "cli/remote/remote_target.h"
#include "cli/remote/ssh_settings.h"

namespace ds::cli {

class SshSession {
 public:
  explicit SshSession(HostAttempt* attempt);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  // Reads the configuration.
  HostOutcome Configure(const RemoteTarget& target);
  // Connects and exchanges keys, until the attempt's deadline. Sends nothing that identifies the
  // user. Requests a type of host key that is in `known_keys`, lines of known_hosts.
  HostOutcome Connect(const std::string& known_keys);
  // Tries the hostfile's identity, the agent's keys, then the identity files of the configuration.
  HostOutcome Authenticate(const RemoteTarget& target);

  // Sets the deadline of all later calls, and of the attempt.
  void SetDeadline(Interrupter::Deadline deadline);
  // Removes the deadline and releases the attempt. Requires: every call has returned.
  void KeepOpen();

  ssh_session handle() const { return session_; }
  // Returns the attempt. Requires that KeepOpen has not been called.
  HostAttempt* attempt() const { return attempt_; }
  // Returns the configuration's policy for host keys.
  const HostKeyPolicy& host_keys() const { return host_keys_; }
  // Returns the dialled endpoint: "10.0.0.2 port 22".
  const std::string& place() const { return place_; }
  // Returns the host's address if it was dialled directly; "" with a proxy command.
  const std::string& peer_address() const { return peer_address_; }
  // Describes the failure: the timeout, the user's cancellation, or libssh's last error.
  HostFailure DescribeBreak(FailureKind kind, const std::string& doing) const;

 private:
  HostOutcome SetOptions(const RemoteTarget& target);
  HostOutcome ReadIdentities();
  std::string GetOption(ssh_options_e option) const;
  // `name`: the host's, if libssh may have rejected it.
  HostFailure DescribeBadOptions(const std::string& name = "") const;
  HostResult<UniqueFd> OpenSocket();
  HostResult<UniqueFd> StartProxy(const std::string& command);
  HostOutcome ReadHostKeyPolicy();
  HostOutcome PreferKeys(const std::string& known_keys);
  HostOutcome Handshake();
  int TryAgent();
  int TryIdentity(const std::string& path);
  HostFailure DescribeRefusal(const RemoteTarget& target) const;

  HostAttempt* attempt_;  // null after KeepOpen
  ssh_session session_;
  std::unique_ptr<ProxyCommand> proxy_;  // null if dialled directly
  std::unique_ptr<Interrupter::Guard> guard_;
  SshSettings settings_;
  SshTokens tokens_;
  std::vector<std::string> identities_;  // files with private keys; not all exist
  std::string agent_;                    // the socket of the user's agent; "" = none
  std::string unread_;                   // key files that could not be read, and why
  HostKeyPolicy host_keys_;
  UniqueFd known_keys_;  // a file that libssh reads during the handshake
  std::string place_;
  std::string peer_address_;
};

}  // namespace ds::cli
