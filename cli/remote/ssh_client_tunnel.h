#pragma once

// SshClientTunnel: SshTunnel's purpose by OpenSSH's own client: each connection that the unix
// socket takes becomes the standard input and output of an `ssh -W`, which goes through the master.
//
// Threads: one of its own, which owns the client. Its end closes everything.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/remote/remote_connection.h"
#include "cli/remote/ssh_client.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class SshClientTunnel : public RemoteTunnel {
 public:
  // Fails, as kPort, when the host's sshd does not reach the daemon or may not.
  static HostResult<std::unique_ptr<RemoteTunnel>> Open(std::unique_ptr<SshClient> client,
                                                        const HostPort& daemon,
                                                        const SshClient::Limits& limits);
  ~SshClientTunnel() override;
  SshClientTunnel(const SshClientTunnel&) = delete;
  SshClientTunnel& operator=(const SshClientTunnel&) = delete;

  std::string target() const override { return "unix:" + socket_path(); }

 private:
  SshClientTunnel(std::unique_ptr<SshClient> client, std::vector<std::string> forward)
      : client_(std::move(client)), forward_(std::move(forward)) {}
  std::string socket_path() const { return (client_->folder().path() / "tunnel.sock").string(); }
  Status Listen();
  void Loop();
  bool Wait();  // false: the tunnel is to end
  void Accept();

  const std::unique_ptr<SshClient> client_;
  const std::vector<std::string> forward_;  // ssh's options that lead to the daemon
  UniqueFd listener_;
  UniqueFd quit_;
  std::vector<std::unique_ptr<SshProcess>> connections_;  // the thread's
  std::thread thread_;
};

}  // namespace ds::cli
