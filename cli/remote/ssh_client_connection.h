#pragma once

// SshClientConnection: a RemoteConnection by OpenSSH's own client (--launcher ssh-client).

#include <memory>
#include <string>

#include "cli/remote/remote_connection.h"
#include "cli/remote/remote_target.h"
#include "cli/remote/ssh_client.h"

namespace ds::cli {

class SshClientConnection : public RemoteConnection {
 public:
  // Logs in.
  static HostResult<std::unique_ptr<RemoteConnection>> Open(const RemoteTarget& target,
                                                            Interrupter* interrupter,
                                                            Interrupter::Deadline deadline);

  void SetDeadline(Interrupter::Deadline deadline) override { limits_.deadline = deadline; }
  HostResult<CommandResult> Run(const RemoteCommand& command) override;
  HostResult<std::unique_ptr<RemoteTunnel>> OpenTunnel(const HostPort& daemon) override;
  std::string peer_address() const override;
  std::string notice() const override { return notice_; }

 private:
  SshClientConnection(std::unique_ptr<SshClient> client, SshClient::Limits limits)
      : client_(std::move(client)), notice_(client_->notice()), limits_(limits) {}

  std::unique_ptr<SshClient> client_;  // the tunnel's once there is one
  const std::string notice_;
  SshClient::Limits limits_;
};

}  // namespace ds::cli
