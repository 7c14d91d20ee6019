#pragma once

// SshClient reaches a host with OpenSSH's own client. That client handles certificates, Kerberos,
// hardware keys and the user's ~/.ssh/config; this class does not interpret them.
//
// One `ssh` logs in as the master of a control socket in a private folder, and each command is
// another `ssh` through it. If the configuration names a ControlPath with a running master of the
// user, that master is used instead and continues to run. Nothing asks a question (BatchMode). The
// hostfile overrides the configuration; StrictHostKeyChecking no becomes accept-new, and ask
// becomes yes; with hostkey= only those keys are accepted.
//
// Not thread-safe. The interrupter must live until the last call has returned. The destructor logs
// out.

#include <memory>
#include <string>
#include <vector>

#include "cli/remote/host_attempt.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/local_process.h"
#include "cli/remote/remote_connection.h"
#include "cli/remote/remote_target.h"
#include "cli/remote/ssh_settings.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {

class SshClient {
 public:
  using Limits = LocalProcess::Limits;
  static HostResult<std::unique_ptr<SshClient>> Open(const RemoteTarget& target,
                                                     const Limits& limits);
  ~SshClient();
  SshClient(const SshClient&) = delete;
  SshClient& operator=(const SshClient&) = delete;

  // Starts an ssh through the master: with `options`, then the host, then `command` ("" = none).
  HostResult<std::unique_ptr<LocalProcess>> Start(const std::vector<std::string>& options,
                                                  const std::string& command,
                                                  int socket = -1) const;
  // Explains why `ssh` ended other than expected.
  HostFailure Explain(const LocalProcess& ssh, LocalProcess::End end,
                      const std::string& doing) const;

  const SshSettings& settings() const { return settings_; }
  // Returns a notice for the user; "" = none.
  const std::string& notice() const { return notice_; }
  // Returns the private folder for sockets.
  const PrivateFolder& folder() const { return folder_; }
  // Returns a descriptor that is readable after the master has ended; -1 for the user's master.
  int end() const { return master_ == nullptr ? -1 : master_->end(); }

 private:
  explicit SshClient(const RemoteTarget& target);
  HostOutcome ReadSettings(const Limits& limits);
  HostOutcome Pin(const std::vector<std::string>& fingerprints);
  HostResult<bool> FindMaster(const Limits& limits);
  HostOutcome StartMaster(const Limits& limits);

  const std::string host_;
  std::vector<std::string> options_;  // of every ssh
  SshSettings settings_;
  PrivateFolder folder_;
  std::unique_ptr<LocalProcess> master_;  // null: the user's master
  std::string notice_;
};

// SshClientConnection is a RemoteConnection over OpenSSH's own client (--launcher ssh-client).
class SshClientConnection : public RemoteConnection {
 public:
  // Logs in.
  static HostResult<std::unique_ptr<RemoteConnection>> Open(const RemoteTarget& target,
                                                            HostAttempt* attempt);

  void SetDeadline(Interrupter::Deadline deadline) override {
    attempt_->SetDeadline(deadline);
    limits_.deadline = deadline;
  }
  HostResult<CommandResult> Run(const RemoteCommand& command) override;
  HostResult<std::unique_ptr<RemoteTunnel>> OpenTunnel(const HostPort& daemon) override;
  std::string peer_address() const override;
  std::string notice() const override { return notice_; }

 private:
  SshClientConnection(std::unique_ptr<SshClient> client, HostAttempt* attempt)
      : client_(std::move(client)),
        notice_(client_->notice()),
        attempt_(attempt),
        limits_{.deadline = attempt->deadline(), .interrupter = attempt->interrupter()} {}

  std::unique_ptr<SshClient> client_;  // moved to the tunnel by OpenTunnel
  const std::string notice_;
  HostAttempt* const attempt_;
  SshClient::Limits limits_;
};

}  // namespace ds::cli
