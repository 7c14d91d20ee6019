#include "cli/remote/ssh_client_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "cli/remote/poll_thread.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

constexpr int kSshFailed = 255;  // or the command has ended so: none of ours does

// Each connection that the unix socket takes becomes the standard input and output of an `ssh -W`,
// which goes through the master. The thread of all tunnels owns the client.
class SshClientTunnel : public RemoteTunnel, private PollMember {
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
  void AddWatched(std::vector<pollfd>* watched) override;
  bool OnReady(std::span<const pollfd> watched) override;
  void Accept();

  const std::unique_ptr<SshClient> client_;
  const std::vector<std::string> forward_;  // ssh's options that lead to the daemon
  UniqueFd listener_;
  std::vector<std::unique_ptr<SshProcess>> connections_;  // the thread's
  std::shared_ptr<PollThread> thread_;
};

std::vector<std::string> ForwardTo(const HostPort& daemon) {
  const bool v6 = daemon.host.find(':') != std::string::npos;
  return {"-W", (v6 ? "[" + daemon.host + "]" : daemon.host) + ":" + std::to_string(daemon.port)};
}

HostResult<std::unique_ptr<RemoteTunnel>> SshClientTunnel::Open(std::unique_ptr<SshClient> client,
                                                                const HostPort& daemon,
                                                                const SshClient::Limits& limits) {
  std::vector<std::string> forward = ForwardTo(daemon);
  // A daemon to which nothing is said hangs up, and ssh ends well; without one it does not.
  const HostResult<std::unique_ptr<SshProcess>> probe = client->Start(forward, "");
  if (!probe.ok()) return probe.failure();
  const SshProcess::End end = (*probe)->Converse({}, limits);
  if (end != SshProcess::End::kExited || (*probe)->status() != 0) {
    HostFailure failure = client->Explain(**probe, end, "connecting to its dsrund");
    if (end != SshProcess::End::kExited) return failure;
    failure.kind = FailureKind::kPort;
    failure.hint =
        "dsrund's port cannot be dialled from here, so its sshd must forward to it: is it "
        "AllowTcpForwarding no there?";
    failure.transient = false;
    return failure;
  }
  std::unique_ptr<SshClientTunnel> tunnel(
      new SshClientTunnel(std::move(client), std::move(forward)));
  if (const Status status = tunnel->Listen(); !status.ok()) {
    return HostFailure{.kind = FailureKind::kPort,
                       .message = "the tunnel to its dsrund: " + status.message()};
  }
  return std::unique_ptr<RemoteTunnel>(std::move(tunnel));
}

Status SshClientTunnel::Listen() {
  DS_ASSIGN_OR_RETURN(listener_, ListenUnix(socket_path()));
  DS_ASSIGN_OR_RETURN(thread_, PollThread::Get());
  thread_->Add(this);
  return OkStatus();
}

SshClientTunnel::~SshClientTunnel() {
  if (thread_ != nullptr) thread_->Remove(this);
}

void SshClientTunnel::AddWatched(std::vector<pollfd>* watched) {
  watched->push_back({client_->end(), POLLIN, 0});
  watched->push_back({listener_.get(), POLLIN, 0});
  for (const auto& connection : connections_) watched->push_back({connection->end(), POLLIN, 0});
}

bool SshClientTunnel::OnReady(std::span<const pollfd> watched) {
  if (watched[0].revents != 0) {
    connections_.clear();
    listener_.Reset();
    return false;
  }
  // From behind, so that places stay what they are.
  for (std::size_t i = connections_.size(); i-- > 0;) {
    if (watched[i + 2].revents != 0) {
      connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (watched[1].revents != 0) Accept();
  return true;
}

void SshClientTunnel::Accept() {
  const UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.valid()) return;
  // Without an ssh the connection is closed, as it would be without a daemon.
  HostResult<std::unique_ptr<SshProcess>> ssh = client_->Start(forward_, "", socket.get());
  if (ssh.ok()) connections_.push_back(*std::move(ssh));
}

}  // namespace

HostResult<std::unique_ptr<RemoteConnection>> SshClientConnection::Open(
    const RemoteTarget& target, Interrupter* interrupter, Interrupter::Deadline deadline) {
  const SshClient::Limits limits{.deadline = deadline, .interrupter = interrupter};
  HostResult<std::unique_ptr<SshClient>> client = SshClient::Open(target, limits);
  if (!client.ok()) return client.failure();
  return std::unique_ptr<RemoteConnection>(new SshClientConnection(*std::move(client), limits));
}

HostResult<CommandResult> SshClientConnection::Run(const RemoteCommand& command) {
  const HostResult<std::unique_ptr<SshProcess>> ssh = client_->Start({}, command.line);
  if (!ssh.ok()) return ssh.failure();
  SshProcess& process = **ssh;
  SshProcess::Talk talk{.input = command.input};
  if (command.one_line_is_enough) {
    talk.enough = [&process] { return process.out().find('\n') != std::string::npos; };
  }
  const SshProcess::End end = process.Converse(talk, limits_);
  const bool failed = process.status() == kSshFailed || process.status() < 0;
  if (end == SshProcess::End::kEnough) {
    return CommandResult{.status = 0, .out = process.out(), .err = process.err()};
  }
  if (end != SshProcess::End::kExited || failed) {
    return client_->Explain(process, end, "running a command");
  }
  return CommandResult{.status = process.status(), .out = process.out(), .err = process.err()};
}

HostResult<std::unique_ptr<RemoteTunnel>> SshClientConnection::OpenTunnel(const HostPort& daemon) {
  return SshClientTunnel::Open(std::move(client_), daemon, limits_);
}

std::string SshClientConnection::peer_address() const {
  return client_->settings().has_proxy ? "" : client_->settings().host_name;
}

}  // namespace ds::cli
