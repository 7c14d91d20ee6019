#include "cli/remote/ssh_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <utility>

#include "cli/remote/poll_thread.h"
#include "cli/remote/remote_shell.h"
#include "cli/remote/ssh_words.h"
#include "runtime/base/files.h"
#include "runtime/base/printable.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

constexpr std::uint64_t kMaxListBytes = std::uint64_t{64} << 20;

// Returns a KnownHostsCommand. It prints the key that the host presents, and thus makes ssh accept
// it, if the key has one of these fingerprints.
std::string PinCommand(const std::vector<std::string>& fingerprints) {
  std::string pattern;
  for (const std::string& each : fingerprints) pattern += (pattern.empty() ? "" : "|") + each;
  return "/bin/sh -c 'case \"$1\" in " + pattern + ") echo \"$2 $3 $4\";; esac' sh %f %H %t %K";
}

// `lists` are names of files with blanks between them, as `ssh -G` prints them.
StatusOr<std::string> RevokedLines(const std::vector<std::string>& lists) {
  std::string revoked;
  std::vector<std::string> files;
  for (const std::string& list : lists) {
    for (std::string& file : SplitConfigWords(list)) files.push_back(std::move(file));
  }
  for (const std::string& file : files) {
    if (file == "none") continue;
    const StatusOr<std::string> text = ReadFile(file, kMaxListBytes);
    if (!text.ok() && text.status().code() == StatusCode::kNotFound) continue;
    if (!text.ok()) return text.status();
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string first;
      if (words >> first && first == "@revoked") revoked += line + "\n";
    }
  }
  return revoked;
}

void AddOptions(const std::vector<std::string>& settings, std::vector<std::string>* options) {
  for (const std::string& setting : settings) options->insert(options->end(), {"-o", setting});
}

}  // namespace

SshClient::SshClient(const RemoteTarget& target) : host_(target.host) {
  options_ = {"-T", "-x"};
  AddOptions({"BatchMode=yes", "LogLevel=INFO", "RemoteCommand=none", "PermitLocalCommand=no",
              "ClearAllForwardings=yes", "ControlMaster=no"},
             &options_);
  if (target.port > 0) options_.insert(options_.end(), {"-p", std::to_string(target.port)});
  if (!target.user.empty()) options_.insert(options_.end(), {"-l", target.user});
  if (!target.identity.empty()) options_.insert(options_.end(), {"-i", target.identity});
  if (!target.address.empty()) AddOptions({"HostName=" + target.address}, &options_);
}

SshClient::~SshClient() {
  master_.reset();
  folder_.Remove();
}

HostResult<std::unique_ptr<LocalProcess>> SshClient::Start(const std::vector<std::string>& options,
                                                           const std::string& command,
                                                           int socket) const {
  std::vector<std::string> words = options;  // first: ssh uses the first value of a setting
  words.insert(words.end(), options_.begin(), options_.end());
  words.insert(words.end(), {"--", host_});
  if (!command.empty()) words.push_back(command);
  StatusOr<std::unique_ptr<LocalProcess>> ssh = LocalProcess::StartSsh(words, socket);
  if (!ssh.ok()) return LocalFailure(ssh.status());
  return std::move(ssh).value();
}

HostFailure SshClient::Explain(const LocalProcess& ssh, LocalProcess::End end,
                               const std::string& doing) const {
  if (end == LocalProcess::End::kInterrupted) {
    return InterruptedFailure();
  }
  if (end == LocalProcess::End::kTimeout) {
    return {.kind = FailureKind::kTimeout,
            .message = "ssh " + host_ + ": no answer while " + doing,
            .hint = "is the host up, and does a firewall drop SSH? --ssh_timeout waits longer",
            .transient = true};
  }
  HostFailure failure = ExplainSsh(host_, ssh.err());
  failure.message += " (while " + doing + ")";
  return failure;
}

HostOutcome SshClient::ReadSettings(const Limits& limits) {
  HostResult<std::unique_ptr<LocalProcess>> ssh = Start({"-G"}, "");
  if (!ssh.ok()) return ssh.failure();
  const LocalProcess::End end = (*ssh)->Converse({}, limits);
  if (end != LocalProcess::End::kExited || (*ssh)->status() != 0) {
    return Explain(**ssh, end, "reading ~/.ssh/config");
  }
  settings_ = SshSettings::Parse((*ssh)->out());
  return HostOutcome();
}

HostOutcome SshClient::Pin(const std::vector<std::string>& fingerprints) {
  const StatusOr<std::string> revoked = RevokedLines(
      {settings_.First("userknownhostsfile"), settings_.First("globalknownhostsfile")});
  if (!revoked.ok()) return LocalFailure(revoked.status());
  const std::filesystem::path file = folder_.path() / "revoked";
  if (const Status written = WriteFileAtomically(file, *revoked, 0600); !written.ok()) {
    return LocalFailure(written);
  }
  AddOptions(
      {"KnownHostsCommand=" + PinCommand(fingerprints), "FingerprintHash=sha256",
       "UserKnownHostsFile=" + file.string(), "GlobalKnownHostsFile=none",
       "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "VerifyHostKeyDNS=no", "CheckHostIP=no"},
      &options_);
  return HostOutcome();
}

HostResult<bool> SshClient::FindMaster(const Limits& limits) {
  const std::string path = settings_.First("controlpath");
  if (path.empty() || path == "none") return false;
  HostResult<std::unique_ptr<LocalProcess>> ssh = Start({"-O", "check"}, "");
  if (!ssh.ok()) return ssh.failure();
  const LocalProcess::End end = (*ssh)->Converse({}, limits);
  if (end != LocalProcess::End::kExited) return Explain(**ssh, end, "asking for a master");
  return (*ssh)->status() == 0;
}

HostOutcome SshClient::StartMaster(const Limits& limits) {
  const std::string path = "ControlPath=" + (folder_.path() / "master").string();
  const std::string marker = MakeMarker();
  // Runs until its standard input ends. That happens when this process ends, even if it is killed.
  const std::string command = "exec /bin/sh -c 'echo " + marker + "; exec cat >/dev/null'";
  HostResult<std::unique_ptr<LocalProcess>> started =
      Start({"-o", path, "-o", "ControlMaster=yes", "-o", "ControlPersist=no"}, command);
  if (!started.ok()) return started.failure();
  master_ = *std::move(started);
  const LocalProcess& master = *master_;
  const LocalProcess::End end = master_->Converse(
      {.stay_open = true,
       .enough = [&] { return master.out().find(marker + "\n") != std::string::npos; }},
      limits);
  if (end == LocalProcess::End::kExited && master.status() != 255 && master.status() != -1 &&
      master.status() != 127) {
    return HostFailure{
        .kind = FailureKind::kStart,
        .message = "the login shell ran no command and printed: '" +
                   Printable(TakeLastLine(master.out().empty() ? master.err() : master.out())) +
                   "'",
        .hint = "may this user work there? user= in the hostfile names another"};
  }
  if (end != LocalProcess::End::kEnough) return Explain(master, end, "logging in");
  options_.insert(options_.begin(), {"-o", path});
  notice_ = WarningOf(master.err());
  return HostOutcome();
}

HostResult<std::unique_ptr<SshClient>> SshClient::Open(const RemoteTarget& target,
                                                       const Limits& limits) {
  std::unique_ptr<SshClient> client(new SshClient(target));
  StatusOr<PrivateFolder> folder = PrivateFolder::Make();
  if (!folder.ok()) return LocalFailure(folder.status());
  client->folder_ = std::move(folder).value();
  const HostOutcome read = client->ReadSettings(limits);
  if (!read.ok()) return read.failure();
  // Pinned keys exclude a running master of the user: it has checked the host's key earlier, and
  // not against these.
  if (target.host_keys.empty()) {
    const std::string strictness =
        AllowedStrictness(client->settings_.First("stricthostkeychecking"));
    if (!strictness.empty()) {
      AddOptions({"StrictHostKeyChecking=" + strictness}, &client->options_);
    }
    const HostResult<bool> found = client->FindMaster(limits);
    if (!found.ok()) return found.failure();
    if (*found) return client;
  } else {
    const HostOutcome pinned = client->Pin(target.host_keys);
    if (!pinned.ok()) return pinned.failure();
  }
  const HostOutcome master = client->StartMaster(limits);
  if (!master.ok()) return master.failure();
  return client;
}

namespace {

constexpr int kSshFailed = 255;  // ssh itself failed; no command that is run here ends with it

// SshClientTunnel runs an `ssh -W` through the master for each connection that its unix socket
// accepts; the connection becomes the standard input and output of that ssh. The poll thread owns
// the client.
class SshClientTunnel : public RemoteTunnel, private PollMember {
 public:
  // Fails with kPort if the host's sshd cannot reach the daemon or forbids forwarding.
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
  const std::vector<std::string> forward_;  // ssh's options for forwarding to the daemon
  UniqueFd listener_;
  std::vector<std::unique_ptr<LocalProcess>> connections_;  // used by the poll thread
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
  // The probe sends nothing. The daemon then closes the connection, and ssh ends with status 0.
  // Without a daemon ssh fails.
  const HostResult<std::unique_ptr<LocalProcess>> probe = client->Start(forward, "");
  if (!probe.ok()) return probe.failure();
  const LocalProcess::End end = (*probe)->Converse({}, limits);
  if (end != LocalProcess::End::kExited || (*probe)->status() != 0) {
    HostFailure failure = client->Explain(**probe, end, "connecting to its dsrund");
    if (end != LocalProcess::End::kExited) return failure;
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
  // Erases from the end, so that the other indices stay valid.
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
  // If ssh does not start, the connection is closed, as if there were no daemon.
  HostResult<std::unique_ptr<LocalProcess>> ssh = client_->Start(forward_, "", socket.get());
  if (ssh.ok()) connections_.push_back(*std::move(ssh));
}

}  // namespace

HostResult<std::unique_ptr<RemoteConnection>> SshClientConnection::Open(const RemoteTarget& target,
                                                                        HostAttempt* attempt) {
  attempt->Enter({.doing = "logging in with ssh"});
  const SshClient::Limits limits{.deadline = attempt->deadline(),
                                 .interrupter = attempt->interrupter()};
  HostResult<std::unique_ptr<SshClient>> client = SshClient::Open(target, limits);
  if (!client.ok()) return client.failure();
  return std::unique_ptr<RemoteConnection>(new SshClientConnection(*std::move(client), attempt));
}

HostResult<CommandResult> SshClientConnection::Run(const RemoteCommand& command) {
  const HostResult<std::unique_ptr<LocalProcess>> ssh = client_->Start({}, command.line);
  if (!ssh.ok()) return ssh.failure();
  LocalProcess& process = **ssh;
  LocalProcess::Talk talk{.input = command.input};
  if (command.one_line_is_enough) {
    talk.enough = [&process, &command] { return command.IsEnough(process.out()); };
  }
  const LocalProcess::End end = process.Converse(talk, limits_);
  const bool failed = process.status() == kSshFailed || process.status() < 0;
  if (end == LocalProcess::End::kEnough) {
    return CommandResult{.status = 0, .out = process.out(), .err = process.err()};
  }
  if (end != LocalProcess::End::kExited || failed) {
    return client_->Explain(process, end, "running a command");
  }
  return CommandResult{.status = process.status(), .out = process.out(), .err = process.err()};
}

HostResult<std::unique_ptr<RemoteTunnel>> SshClientConnection::OpenTunnel(const HostPort& daemon) {
  return SshClientTunnel::Open(std::move(client_), daemon, limits_);
}

std::string SshClientConnection::peer_address() const {
  const SshSettings& settings = client_->settings();
  const std::string proxy = settings.First("proxycommand") + settings.First("proxyjump");
  return proxy.empty() || proxy == "none" ? settings.First("hostname") : "";
}

}  // namespace ds::cli
