#include "cli/remote/remote_shell.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "runtime/process/freer.h"

namespace ds::cli {
namespace {

constexpr char kRunningCommand[] = "running a command";
constexpr std::size_t kMaxOutput = std::size_t{1} << 20;
constexpr int kSliceMillis = 100;  // how long standard error may wait for standard output

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

std::string ShellQuote(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string ScriptCommand(const std::vector<std::string>& wrapper, const std::string& script,
                          const std::vector<std::string>& arguments) {
  std::string inner = "exec ";
  for (const std::string& word : wrapper) inner += ShellQuote(word) + " ";
  std::string line = script;
  std::replace(line.begin(), line.end(), '\n', ' ');
  inner += "/bin/sh -c " + ShellQuote(line) + " dsrun \"$SSH_CONNECTION\"";
  for (const std::string& argument : arguments) inner += " " + ShellQuote(argument);
  return "exec /bin/sh -c " + ShellQuote(inner);
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

HostResult<ScriptResult> RemoteShell::Run(const Script& script) {
  const Channel channel(::ssh_channel_new(session_->handle()));
  const std::string command = ScriptCommand(wrapper_, script.text, script.arguments);
  if (channel == nullptr || ::ssh_channel_open_session(channel.get()) != SSH_OK ||
      ::ssh_channel_request_exec(channel.get(), command.c_str()) != SSH_OK) {
    return session_->Broken(FailureKind::kStart, kRunningCommand);
  }
  return Talk(channel.get(), script);
}

HostResult<ScriptResult> RemoteShell::Talk(ssh_channel channel, const Script& script) {
  ScriptResult result;
  std::string_view left = script.input;
  while (!left.empty()) {
    const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(left.size(), 1 << 20));
    const int written = ::ssh_channel_write(channel, left.data(), part);
    if (written <= 0) break;  // it does not read: its status says why
    left.remove_prefix(written);
  }
  ::ssh_channel_send_eof(channel);
  while (::ssh_channel_is_eof(channel) == 0) {
    if (!ReadSome(channel, false, kSliceMillis, &result.out) ||
        !ReadSome(channel, true, 0, &result.err)) {
      return session_->Broken(FailureKind::kStart, kRunningCommand);
    }
    if (script.one_line_is_enough && result.out.find('\n') != std::string::npos) {
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
