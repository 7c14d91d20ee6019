#include "cli/remote/read_ssh_settings.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "cli/remote/local_process.h"
#include "cli/remote/ssh_config.h"
#include "cli/remote/ssh_words.h"
#include "runtime/base/files.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {
namespace {

constexpr char kSystemFolder[] = "/etc/ssh";
constexpr char kSystemConfig[] = "/etc/ssh/ssh_config";
constexpr int kNotFound = 127;  // of a shell, for a program that does not exist

std::string UsersConfig() { return FindHomeDirectory() + "/.ssh/config"; }

HostResult<std::unique_ptr<LocalProcess>> AwaitEnd(StatusOr<std::unique_ptr<LocalProcess>> process,
                                                   HostAttempt* attempt) {
  if (!process.ok()) return LocalFailure(process.status());
  const LocalProcess::End end = (*process)->Converse(
      {}, {.deadline = attempt->deadline(), .interrupter = attempt->interrupter()});
  if (end != LocalProcess::End::kExited) {
    return attempt->DescribeHang(end == LocalProcess::End::kInterrupted);
  }
  return std::move(process).value();
}

HostResult<bool> RunMatchExec(const std::string& command, HostAttempt* attempt) {
  attempt->Enter({"running '" + command + "' for Match exec in the SSH configuration",
                  "the command must end by itself, without input"});
  const char* shell = std::getenv("SHELL");
  const std::string program = shell != nullptr && *shell == '/' ? shell : "/bin/sh";
  const auto process = AwaitEnd(LocalProcess::Start({program, "-c", command}), attempt);
  if (!process.ok()) return process.failure();
  return (*process)->status() == 0;
}

// Writes a configuration that reads both files. Its last lines set the values that dsrun uses where
// no file sets one: the client would print "ask", and files in the home of the user database.
StatusOr<std::string> WriteConfig(const PrivateFolder& folder) {
  const std::string path = (folder.path() / "config").string();
  const std::string known = FindHomeDirectory() + "/.ssh/known_hosts";
  const std::string text = "Include \"" + UsersConfig() + "\"\nInclude " + kSystemConfig +
                           "\nHost *\nStrictHostKeyChecking accept-new\nUserKnownHostsFile \"" +
                           known + "\" \"" + known + "2\"\n";
  DS_RETURN_IF_ERROR(WriteFileAtomically(path, text, 0600, Durability::kAtomic));
  return path;
}

HostResult<SshSettings> AskSsh(const RemoteTarget& target, const std::string& config,
                               const std::string& line, HostAttempt* attempt) {
  attempt->Enter(
      {"asking 'ssh -G' for the SSH configuration of the host, because of '" + line + "'",
       "does a command or a name server in it hang? 'ssh -G HOST' shows it"});
  std::vector<std::string> words = {"-G", "-F", config};
  if (!target.user.empty()) words.insert(words.end(), {"-l", target.user});
  if (target.port > 0) words.insert(words.end(), {"-p", std::to_string(target.port)});
  if (!target.address.empty()) words.insert(words.end(), {"-o", "HostName=" + target.address});
  words.insert(words.end(), {"--", target.host});
  const auto ssh = AwaitEnd(LocalProcess::StartSsh(words), attempt);
  if (!ssh.ok()) return ssh.failure();
  if ((*ssh)->status() == kNotFound) {
    return HostFailure{.kind = FailureKind::kStart,
                       .message = "'" + line +
                                  "' of the SSH configuration cannot be honoured: only OpenSSH's "
                                  "client interprets it, and this machine has none",
                       .hint = "install ssh, or keep the line from this host"};
  }
  if ((*ssh)->status() != 0) return ExplainSsh(target.host, (*ssh)->err());
  return SshSettings::Parse((*ssh)->out());
}

}  // namespace

HostResult<SshSettings> ReadSshSettings(const RemoteTarget& target, HostAttempt* attempt) {
  attempt->Enter({"reading the SSH configuration", "does the file system of ~/.ssh hang?"});
  const std::filesystem::path users = UsersConfig();
  const SshConfig::File files[] = {{users, users.parent_path()}, {kSystemConfig, kSystemFolder}};
  HostResult<SshConfig::Reading> reading = SshConfig::Read(
      files, {.host = target.host,
              .user = target.user,
              .local_user = FindLocalUser(),
              .run = [&](const std::string& command) { return RunMatchExec(command, attempt); }});
  if (!reading.ok()) return reading.failure();
  if (reading->beyond.empty()) return std::move(reading->settings);
  StatusOr<PrivateFolder> folder = PrivateFolder::Make();
  if (!folder.ok()) return LocalFailure(folder.status());
  const StatusOr<std::string> config = WriteConfig(*folder);
  HostResult<SshSettings> settings = config.ok()
                                         ? AskSsh(target, *config, reading->beyond, attempt)
                                         : HostResult<SshSettings>(LocalFailure(config.status()));
  folder->Remove();
  return settings;
}

std::string FindLocalUser() {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer{};
  ::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? "" : entry.pw_name;
}

}  // namespace ds::cli
