#pragma once

// SshSession: an authenticated SSH connection to one host, over libssh.
//
// Order: Connect, CheckHostKey (host_keys.h), Authenticate; then commands and files. Every call
// blocks until it is done, its deadline has passed or the interrupter ends it. ~/.ssh/config and
// /etc/ssh/ssh_config are read; what the hostfile says goes before them. No password is ever asked
// for.
//
// Threads: one at a time; sessions do not share anything. Lifetimes: the interrupter outlives it.

#include <libssh/libssh.h>

#include <memory>
#include <optional>
#include <string>

#include "cli/remote/dial.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/host_key_policy.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/proxy_command.h"
#include "cli/remote/remote_target.h"

namespace ds::cli {

class SshSession {
 public:
  explicit SshSession(Interrupter* interrupter);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  // Dials and agrees on keys; nothing is sent that identifies the user.
  HostOutcome Connect(const RemoteTarget& target, Interrupter::Deadline deadline);
  // Tries the hostfile's identity, the agent's keys, then the identity files of the configuration.
  HostOutcome Authenticate(const RemoteTarget& target);

  // Everything from now on must be done by then.
  void SetDeadline(Interrupter::Deadline deadline);
  // No deadline any more, and the interrupter may go. Requires: every call has returned.
  void KeepOpen();

  ssh_session handle() const { return session_; }
  // The failure, with a hint where the configuration has lines for the host that only OpenSSH
  // reads.
  HostFailure AddConfigHint(HostFailure failure) const;
  // Returns what the configuration says of host keys. An alias takes the place of the host's name
  // and port in what libssh looks for in files.
  const HostKeyPolicy& host_keys() const { return host_keys_; }
  // "10.0.0.2 port 22", as dialled.
  const std::string& place() const { return place_; }
  // The host's address when it was dialled directly; "" through a proxy command.
  const std::string& peer_address() const { return peer_address_; }
  // libssh's last words; or that the time is over, or that the user gave up, when that is why.
  HostFailure DescribeBreak(FailureKind kind, const std::string& doing) const;

 private:
  struct Way {
    HostPort endpoint;
    std::string proxy;  // the command that leads there; "" = it is dialled
  };
  HostResult<Way> Configure(const RemoteTarget& target);
  HostOutcome ReadConfiguration(const RemoteTarget& target);
  std::string GetOption(ssh_options_e option) const;
  HostFailure DescribeBadOptions() const;
  HostResult<UniqueFd> OpenSocket(const RemoteTarget& target, const Way& way,
                                  Interrupter::Deadline deadline);
  HostResult<UniqueFd> StartProxy(const std::string& command);
  HostOutcome ReadHostKeyPolicy(const RemoteTarget& target, const HostPort& endpoint);
  HostOutcome Handshake(Interrupter::Deadline deadline);
  std::optional<int> TryIdentity(const std::string& path);
  HostFailure DescribeRefusal(const RemoteTarget& target) const;

  Interrupter* interrupter_;  // null once it is kept open
  ssh_session session_;
  std::string passed_over_;              // as SshConfig
  std::unique_ptr<ProxyCommand> proxy_;  // what carries the connection, if not the network
  std::unique_ptr<Interrupter::Guard> guard_;
  HostKeyWords key_words_;
  HostKeyPolicy host_keys_;
  std::string place_;
  std::string peer_address_;
};

}  // namespace ds::cli
