#include "cli/remote/libssh_connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "cli/remote/ssh_tunnel.h"
#include "runtime/process/freer.h"

namespace ds::cli {
namespace {

constexpr char kRunningCommand[] = "running a command";
constexpr std::size_t kMaxOutput = std::size_t{1} << 20;
constexpr std::size_t kLongestPiece = std::size_t{1} << 20;
constexpr int kSliceMillis = 100;  // how long one stream may wait for another

using Channel = std::unique_ptr<ssh_channel_struct, Freer<ssh_channel_free>>;

// Appends what there is of one stream; false when the connection is broken.
bool ReadSome(ssh_channel channel, bool is_error, int timeout_millis, std::string* text) {
  std::array<char, 16384> buffer;
  const int got = ::ssh_channel_read_timeout(channel, buffer.data(), buffer.size(),
                                             is_error ? 1 : 0, timeout_millis);
  if (got == SSH_ERROR) return false;
  if (got > 0 && text->size() < kMaxOutput) text->append(buffer.data(), got);
  return true;
}

}  // namespace

HostResult<std::unique_ptr<RemoteConnection>> LibsshConnection::Open(
    const RemoteTarget& target, HostKeys* host_keys, Interrupter* interrupter,
    Interrupter::Deadline deadline) {
  auto session = std::make_unique<SshSession>(interrupter);
  const HostOutcome reached = session->Connect(target, deadline);
  if (!reached.ok()) return reached.failure();
  const HostResult<std::string> known = host_keys->Check(*session, target);
  if (!known.ok()) return known.failure();
  const HostOutcome let_in = session->Authenticate(target);
  if (!let_in.ok()) return let_in.failure();
  return std::unique_ptr<RemoteConnection>(new LibsshConnection(std::move(session), *known));
}

HostResult<CommandResult> LibsshConnection::Run(const RemoteCommand& command) {
  const Channel channel(::ssh_channel_new(session_->handle()));
  if (channel == nullptr || ::ssh_channel_open_session(channel.get()) != SSH_OK ||
      ::ssh_channel_request_exec(channel.get(), command.line.c_str()) != SSH_OK) {
    return session_->Broken(FailureKind::kStart, kRunningCommand);
  }
  return Talk(channel.get(), command);
}

HostResult<std::unique_ptr<RemoteTunnel>> LibsshConnection::OpenTunnel(const HostPort& daemon) {
  return SshTunnel::Open(std::move(session_), daemon);
}

// Sends what the window has room for, and waits where there is none: a blocking write would wait
// for ever once the command has ended without reading. libssh shows that end only to those who have
// read what the command said.
bool LibsshConnection::Send(ssh_channel channel, std::string_view input, CommandResult* result) {
  const ssh_session handle = session_->handle();
  while (!input.empty() && ::ssh_is_connected(handle) != 0) {
    if (!ReadSome(channel, false, 0, &result->out) || !ReadSome(channel, true, 0, &result->err)) {
      return false;
    }
    if (::ssh_channel_is_eof(channel) != 0) return true;  // it does not read: its status says why
    const std::size_t room =
        std::min<std::size_t>(::ssh_channel_window_size(channel), kLongestPiece);
    if (room == 0) {
      pollfd packets{::ssh_get_fd(handle), POLLIN, 0};
      ::poll(&packets, 1, kSliceMillis);
      continue;
    }
    const auto part = static_cast<std::uint32_t>(std::min(input.size(), room));
    const int written = ::ssh_channel_write(channel, input.data(), part);
    if (written <= 0) return true;
    input.remove_prefix(written);
  }
  return input.empty();
}

HostResult<CommandResult> LibsshConnection::Talk(ssh_channel channel,
                                                 const RemoteCommand& command) {
  CommandResult result;
  if (!Send(channel, command.input, &result)) {
    return session_->Broken(FailureKind::kStart, kRunningCommand);
  }
  ::ssh_channel_send_eof(channel);
  while (::ssh_channel_is_eof(channel) == 0) {
    if (!ReadSome(channel, false, kSliceMillis, &result.out) ||
        !ReadSome(channel, true, 0, &result.err)) {
      return session_->Broken(FailureKind::kStart, kRunningCommand);
    }
    if (command.one_line_is_enough && result.out.find('\n') != std::string::npos) {
      result.status = 0;
      return result;
    }
    if (::ssh_is_connected(session_->handle()) == 0) {
      return session_->Broken(FailureKind::kStart, kRunningCommand);
    }
  }
  ReadSome(channel, false, 0, &result.out);
  ReadSome(channel, true, 0, &result.err);
  result.status = ::ssh_channel_get_exit_status(channel);
  return result;
}

}  // namespace ds::cli
