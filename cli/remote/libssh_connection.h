#pragma once

// LibsshConnection is a RemoteConnection over libssh, in this process.

#include <memory>
#include <string>

#include "cli/remote/host_keys.h"
#include "cli/remote/remote_connection.h"
#include "cli/remote/ssh_session.h"

namespace ds::cli {

class LibsshConnection : public RemoteConnection {
 public:
  // Connects, checks the host's key and logs in.
  static HostResult<std::unique_ptr<RemoteConnection>> Open(const RemoteTarget& target,
                                                            HostKeys* host_keys,
                                                            HostAttempt* attempt);

  void SetDeadline(Interrupter::Deadline deadline) override { session_->SetDeadline(deadline); }
  HostResult<CommandResult> Run(const RemoteCommand& command) override;
  HostResult<std::unique_ptr<RemoteTunnel>> OpenTunnel(const HostPort& daemon) override;
  std::string peer_address() const override { return session_->peer_address(); }
  std::string notice() const override { return notice_; }

 private:
  LibsshConnection(std::unique_ptr<SshSession> session, std::string notice)
      : session_(std::move(session)), notice_(std::move(notice)) {}
  // Returns false if the connection is broken.
  bool Send(ssh_channel channel, std::string_view input, CommandResult* result);
  HostResult<CommandResult> Talk(ssh_channel channel, const RemoteCommand& command);

  std::unique_ptr<SshSession> session_;  // moved to the tunnel by OpenTunnel
  const std::string notice_;
};

}  // namespace ds::cli
