#include "cli/remote/ssh_client_tunnel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

std::vector<std::string> ForwardTo(const HostPort& daemon) {
  const bool v6 = daemon.host.find(':') != std::string::npos;
  return {"-W", (v6 ? "[" + daemon.host + "]" : daemon.host) + ":" + std::to_string(daemon.port)};
}

}  // namespace

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
  quit_.Reset(::eventfd(0, EFD_CLOEXEC));
  if (!quit_.valid()) return ErrnoError(errno, "eventfd");
  thread_ = std::thread([this] { Loop(); });
  return OkStatus();
}

SshClientTunnel::~SshClientTunnel() {
  if (!thread_.joinable()) return;
  ::eventfd_write(quit_.get(), 1);
  thread_.join();
}

void SshClientTunnel::Loop() {
  while (Wait()) {
  }
  connections_.clear();
  listener_.Reset();
}

bool SshClientTunnel::Wait() {
  std::vector<pollfd> watched = {
      {quit_.get(), POLLIN, 0}, {client_->end(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const auto& connection : connections_) watched.push_back({connection->end(), POLLIN, 0});
  if (::poll(watched.data(), watched.size(), -1) < 0) return errno == EINTR;
  if (watched[0].revents != 0 || watched[1].revents != 0) return false;
  // From behind, so that places stay what they are.
  for (std::size_t i = connections_.size(); i-- > 0;) {
    if (watched[i + 3].revents != 0) {
      connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (watched[2].revents != 0) Accept();
  return true;
}

void SshClientTunnel::Accept() {
  const UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.valid()) return;
  // Without an ssh the connection is closed, as it would be without a daemon.
  HostResult<std::unique_ptr<SshProcess>> ssh = client_->Start(forward_, "", socket.get());
  if (ssh.ok()) connections_.push_back(*std::move(ssh));
}

}  // namespace ds::cli
