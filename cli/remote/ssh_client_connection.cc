#include "cli/remote/ssh_client_connection.h"

#include "cli/remote/ssh_client_tunnel.h"

namespace ds::cli {
namespace {

constexpr int kSshFailed = 255;  // or the command has ended so: none of ours does

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
