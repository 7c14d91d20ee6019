#pragma once

// SshTunnel: a way to a daemon's port through the SSH connection that started it, for hosts that
// nothing but SSH reaches: behind a ProxyCommand or ProxyJump, or a firewall.
//
// A unix socket in a private folder takes connections here; each becomes a channel that the host's
// sshd connects to the daemon. Bytes pass as they are: TLS is between dsrun and the daemon, and
// sees no difference. Where SSH breaks, the socket is gone: nothing takes connections any more.
//
// Threads: one of its own, which owns the session. Its end closes everything.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/remote/remote_connection.h"
#include "cli/remote/ssh_session.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {

class SshTunnel : public RemoteTunnel {
 public:
  // Fails, as kPort, when the host's sshd does not reach the daemon or may not.
  static HostResult<std::unique_ptr<RemoteTunnel>> Open(std::unique_ptr<SshSession> session,
                                                        const HostPort& daemon);
  ~SshTunnel() override;
  SshTunnel(const SshTunnel&) = delete;
  SshTunnel& operator=(const SshTunnel&) = delete;

  std::string target() const override { return "unix:" + socket_path(); }

 private:
  class Connection;

  SshTunnel(std::unique_ptr<SshSession> session, HostPort daemon);
  std::string socket_path() const { return (folder_.path() / "tunnel.sock").string(); }
  Status Listen();
  void Loop();
  bool Wait();  // false: the tunnel is to end
  void Accept();

  const std::unique_ptr<SshSession> session_;
  const HostPort daemon_;
  PrivateFolder folder_;
  UniqueFd listener_;
  UniqueFd quit_;
  ssh_event packets_ = nullptr;
  std::vector<std::unique_ptr<Connection>> connections_;  // the thread's
  std::thread thread_;
};

}  // namespace ds::cli
