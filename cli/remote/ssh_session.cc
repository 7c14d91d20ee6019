#include "cli/remote/ssh_session.h"

#include <pwd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <utility>

#include "cli/remote/ssh_config.h"
#include "cli/remote/ssh_words.h"
#include "runtime/base/files.h"
#include "runtime/process/freer.h"

namespace ds::cli {
namespace {

constexpr char kSystemFolder[] = "/etc/ssh";
constexpr char kSystemConfig[] = "/etc/ssh/ssh_config";

// Not null: OpenSSL would then ask for a passphrase on the terminal. A key with a passphrase is
// usable through the agent only.
constexpr char kNoPassphrase[] = "";

constexpr char kHungFile[] = "does its file system hang?";
constexpr char kHungAgent[] =
    "'ssh-add -l' must answer at once; without SSH_AUTH_SOCK no agent is asked";

bool SetText(ssh_session session, ssh_options_e option, const std::string& value) {
  return value.empty() || ::ssh_options_set(session, option, value.c_str()) == SSH_OK;
}

bool SetNumber(ssh_session session, ssh_options_e option, int value) {
  return ::ssh_options_set(session, option, &value) == SSH_OK;
}

std::string OptionOf(ssh_session session, ssh_options_e option) {
  char* value = nullptr;
  if (::ssh_options_get(session, option, &value) != SSH_OK) return "";
  std::string text(value);
  ::ssh_string_free_char(value);
  return text;
}

bool Parse(ssh_session session, const SshConfig& config, SshConfig::Part part) {
  return ::ssh_options_parse_config(session, config.path(part).c_str()) == SSH_OK;
}

std::string Decoded(ssh_session session, ssh_options_e option) {
  return SshConfig::Decode(OptionOf(session, option));
}

// Reads the configuration's settings about host keys. The file names are taken from `options`, a
// session that has read the configuration.
HostKeyWords ReadKeyWords(const SshConfig& config, const std::string& folder,
                          const std::string& host, ssh_session options) {
  const std::unique_ptr<ssh_session_struct, Freer<ssh_free>> reader(::ssh_new());
  DS_CHECK_MSG(reader != nullptr, "out of memory");
  SetText(reader.get(), SSH_OPTIONS_SSH_DIR, folder);
  SetText(reader.get(), SSH_OPTIONS_HOST, host);
  Parse(reader.get(), config, SshConfig::kKeys);
  unsigned hash = 0;
  ::ssh_options_get_port(reader.get(), &hash);
  return {.strict = Decoded(reader.get(), SSH_OPTIONS_PROXYCOMMAND),
          .hash = hash == 1 ? "yes" : "",
          .alias = Decoded(reader.get(), SSH_OPTIONS_KNOWNHOSTS),
          .users_files = Decoded(options, SSH_OPTIONS_KNOWNHOSTS),
          .systems_files = Decoded(options, SSH_OPTIONS_GLOBAL_KNOWNHOSTS),
          .revoked = Decoded(reader.get(), SSH_OPTIONS_GLOBAL_KNOWNHOSTS)};
}

// Returns the socket of the user's agent; "" = none.
std::string FindAgent() {
  const char* agent = std::getenv("SSH_AUTH_SOCK");
  return agent == nullptr ? "" : agent;
}

// Returns the user name that SSH uses by default.
std::string LocalUser() {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer{};
  ::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? "" : entry.pw_name;
}

std::string AuthenticationMethods(ssh_session session) {
  const int methods = ::ssh_userauth_list(session, nullptr);
  std::string names;
  const auto add = [&](unsigned method, const char* name) {
    if ((static_cast<unsigned>(methods) & method) != 0)
      names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(SSH_AUTH_METHOD_PUBLICKEY, "public keys");
  add(SSH_AUTH_METHOD_PASSWORD, "passwords");
  add(SSH_AUTH_METHOD_INTERACTIVE, "prompts");
  add(SSH_AUTH_METHOD_HOSTBASED, "trusted hosts");
  add(SSH_AUTH_METHOD_GSSAPI_MIC, "Kerberos");
  return names.empty() ? "nothing" : names;
}

}  // namespace

SshSession::SshSession(HostAttempt* attempt) : attempt_(attempt), session_(::ssh_new()) {
  DS_CHECK_MSG(session_ != nullptr, "out of memory");
}

SshSession::~SshSession() {
  guard_.reset();
  if (::ssh_is_connected(session_) != 0) ::ssh_disconnect(session_);
  ::ssh_free(session_);
}

std::string SshSession::GetOption(ssh_options_e option) const { return OptionOf(session_, option); }

HostFailure SshSession::DescribeBreak(FailureKind kind, const std::string& doing) const {
  if (attempt_ != nullptr && attempt_->interrupter()->interrupted()) {
    return {.kind = FailureKind::kInterrupted, .message = "interrupted"};
  }
  if (guard_ != nullptr && guard_->fired()) {
    return {.kind = FailureKind::kTimeout,
            .message = place_ + ": no answer while " + doing,
            .hint = "is the host overloaded? --ssh_timeout waits longer",
            .transient = true};
  }
  return {.kind = kind, .message = place_ + ", while " + doing + ": " + ::ssh_get_error(session_)};
}

HostOutcome SshSession::Configure(const RemoteTarget& target) {
  attempt_->Enter({"reading the SSH configuration",
                   "does the home directory hang, or a command of Match exec?"});
  HostResult<Way> way = FindWay(target);
  if (!way.ok()) return way.failure();
  way_ = *std::move(way);
  place_ = way_.endpoint.host + " port " + std::to_string(way_.endpoint.port);
  return ReadHostKeyPolicy(target);
}

HostOutcome SshSession::Connect(const RemoteTarget& target, const std::string& known_keys) {
  const HostOutcome preferred = PreferKeys(known_keys);
  if (!preferred.ok()) return preferred;
  HostResult<UniqueFd> socket = OpenSocket(target);
  if (!socket.ok()) return socket.failure();
  const socket_t fd = socket->Release();  // libssh closes it
  ::ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
  return Handshake();
}

HostFailure SshSession::AddConfigHint(HostFailure failure) const {
  if (passed_over_.empty() || failure.kind == FailureKind::kInterrupted) return failure;
  failure.hint += (failure.hint.empty() ? "" : "; ") + std::string("'") + passed_over_ +
                  "' of the SSH configuration is skipped here: --launcher ssh-client reads it";
  return failure;
}

HostOutcome SshSession::ReadHostKeyPolicy(const RemoteTarget& target) {
  const std::string user = GetOption(SSH_OPTIONS_USER);
  const HostResult<HostKeyPolicy> policy =
      MakeHostKeyPolicy(key_words_, {.name = target.host,
                                     .host = way_.endpoint.host,
                                     .port = way_.endpoint.port,
                                     .user = user.empty() ? LocalUser() : user});
  if (!policy.ok()) return policy.failure();
  host_keys_ = *policy;
  return HostOutcome();
}

HostOutcome SshSession::PreferKeys(const std::string& known_keys) {
  known_keys_.Reset(::memfd_create("known_hosts", MFD_CLOEXEC));
  const Status written = known_keys_.valid()
                             ? WriteAll(known_keys_.get(), known_keys, "known_hosts")
                             : ErrnoError(errno, "memfd_create");
  if (!written.ok()) {
    return HostFailure{.kind = FailureKind::kStart, .message = written.message()};
  }
  const bool good = SetText(session_, SSH_OPTIONS_KNOWNHOSTS,
                            "/proc/self/fd/" + std::to_string(known_keys_.get())) &&
                    SetText(session_, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
  return good ? HostOutcome() : DescribeBadOptions();
}

HostResult<UniqueFd> SshSession::OpenSocket(const RemoteTarget& target) {
  attempt_->Enter({.doing = "connecting to " + place_});
  if (way_.proxy.empty()) {
    HostResult<UniqueFd> socket =
        Dial(way_.endpoint, attempt_->deadline(), attempt_->interrupter());
    if (socket.ok()) peer_address_ = ReadPeerAddress(socket->get());
    return socket;
  }
  const std::string user = GetOption(SSH_OPTIONS_USER);
  const ProxyTokens tokens{.host = way_.endpoint.host,
                           .port = way_.endpoint.port,
                           .user = user.empty() ? LocalUser() : user,
                           .name = target.host};
  return StartProxy(ExpandProxyCommand(way_.proxy, tokens));
}

HostResult<UniqueFd> SshSession::StartProxy(const std::string& command) {
  auto proxy = ProxyCommand::Start(command);
  if (!proxy.ok()) {
    return HostFailure{.kind = FailureKind::kStart,
                       .message = "proxy command: " + proxy.status().message(),
                       .hint = "look at ProxyCommand in ~/.ssh/config"};
  }
  proxy_ = std::move(proxy).value();
  return proxy_->TakeSocket();
}

// libssh rejects some host names without an error text: names with a letter that is not ASCII, with
// an empty label, with a label of more than 63 characters, or with more than 255 in all.
HostFailure SshSession::DescribeBadOptions() const {
  std::string reason = ::ssh_get_error(session_);
  if (reason.empty()) {
    reason =
        "libssh does not accept this host name or user: labels of 1 to 63 letters (a-z), digits "
        "and '-', with dots between them, 255 characters in all";
  }
  return {.kind = FailureKind::kStart,
          .message = "SSH options: " + reason,
          .hint =
              "look at ~/.ssh/config and at the host's line in the hostfile: address= gives the "
              "host another name to dial"};
}

HostOutcome SshSession::ReadConfiguration(const RemoteTarget& target) {
  const std::string folder = FindHomeDirectory() + "/.ssh";
  const SshConfig::File files[] = {{folder + "/config", folder}, {kSystemConfig, kSystemFolder}};
  const StatusOr<SshConfig> config = SshConfig::Read(files, target.host);
  if (!config.ok()) {
    return HostFailure{.kind = FailureKind::kStart,
                       .message = config.status().message(),
                       .hint = HintFor("'ssh HOST' shows more", target.host)};
  }
  if (SetText(session_, SSH_OPTIONS_SSH_DIR, folder) &&
      SetText(session_, SSH_OPTIONS_HOST, target.host) &&
      Parse(session_, *config, SshConfig::kOptions)) {
    key_words_ = ReadKeyWords(*config, folder, target.host, session_);
    passed_over_ = config->passed_over();
    return HostOutcome();
  }
  return DescribeBadOptions();
}

HostResult<SshSession::Way> SshSession::FindWay(const RemoteTarget& target) {
  const HostOutcome read = ReadConfiguration(target);
  if (!read.ok()) return read.failure();
  // The hostfile overrides the configuration.
  bool good = SetText(session_, SSH_OPTIONS_HOST, target.address) &&
              SetText(session_, SSH_OPTIONS_USER, target.user);
  if (good && target.port > 0) good = SetNumber(session_, SSH_OPTIONS_PORT, target.port);
  // Strict checking, regardless of the configuration, and no log of libssh on the user's terminal.
  good = good && SetNumber(session_, SSH_OPTIONS_STRICTHOSTKEYCHECK, 1) &&
         SetNumber(session_, SSH_OPTIONS_LOG_VERBOSITY, SSH_LOG_NONE);
  if (!good) return DescribeBadOptions();
  unsigned port = 0;
  ::ssh_options_get_port(session_, &port);
  return Way{
      .endpoint = {GetOption(SSH_OPTIONS_HOST), port == 0 ? kSshPort : static_cast<int>(port)},
      .proxy = GetOption(SSH_OPTIONS_PROXYCOMMAND)};
}

HostOutcome SshSession::Handshake() {
  // The first call does not block. It takes over the socket, which the guard needs.
  ::ssh_set_blocking(session_, 0);
  int result = ::ssh_connect(session_);
  if (result != SSH_ERROR) {
    guard_ = std::make_unique<Interrupter::Guard>(attempt_->interrupter(), ::ssh_get_fd(session_),
                                                  attempt_->deadline());
    const long seconds = 24L * 3600;  // libssh's own limit; the guard enforces the deadline
    ::ssh_options_set(session_, SSH_OPTIONS_TIMEOUT, &seconds);
    ::ssh_set_blocking(session_, 1);
    if (result == SSH_AGAIN) result = ::ssh_connect(session_);
  }
  if (result == SSH_OK) return HostOutcome();
  HostFailure failure = DescribeBreak(FailureKind::kHandshake, "agreeing on keys");
  if (failure.kind != FailureKind::kHandshake) return failure;
  failure.hint =
      "is it an SSH server? one with too many connections hangs up as well (MaxStartups)";
  failure.transient = true;
  if (proxy_ != nullptr) {
    const std::string words = proxy_->ReadLastWords();
    if (!words.empty()) failure.message += "; the proxy command printed: " + words;
    failure.hint =
        "look at ProxyCommand or ProxyJump in ~/.ssh/config; it must work without a "
        "question";
  }
  return failure;
}

void SshSession::SetDeadline(Interrupter::Deadline deadline) {
  attempt_->SetDeadline(deadline);
  guard_->SetDeadline(deadline);
}

void SshSession::KeepOpen() {
  guard_.reset();
  attempt_ = nullptr;
}

// Returns the result of the login; nullopt if the file contains no usable key.
std::optional<int> SshSession::TryIdentity(const std::string& path) {
  ssh_key key = nullptr;
  if (::ssh_pki_import_privkey_file(path.c_str(), kNoPassphrase, nullptr, nullptr, &key) !=
      SSH_OK) {
    return std::nullopt;
  }
  const int result = ::ssh_userauth_publickey(session_, nullptr, key);
  ::ssh_key_free(key);
  return result;
}

HostOutcome SshSession::Authenticate(const RemoteTarget& target) {
  int result = ::ssh_userauth_none(session_, nullptr);
  if (result == SSH_AUTH_DENIED && !target.identity.empty()) {
    attempt_->Enter({"reading the key " + target.identity, kHungFile});
    result = TryIdentity(target.identity).value_or(SSH_AUTH_DENIED);
  }
  if (result == SSH_AUTH_DENIED) {
    const std::string agent = FindAgent();
    attempt_->Enter({(agent.empty() ? "" : "asking the SSH agent " + agent + " or ") +
                         "reading the identity files",
                     agent.empty() ? kHungFile : kHungAgent});
    result = ::ssh_userauth_publickey_auto(session_, nullptr, kNoPassphrase);
  }
  if (result == SSH_AUTH_SUCCESS) return HostOutcome();
  if (result == SSH_AUTH_DENIED || result == SSH_AUTH_PARTIAL) return DescribeRefusal(target);
  HostFailure failure = DescribeBreak(FailureKind::kAuthentication, "logging in");
  if (failure.kind == FailureKind::kAuthentication) {
    failure.hint = "too many keys in the agent? name the right one by identity=";
    failure.transient = true;
  }
  return failure;
}

HostFailure SshSession::DescribeRefusal(const RemoteTarget& target) const {
  const std::string user = GetOption(SSH_OPTIONS_USER);
  const bool has_agent = !FindAgent().empty();
  return {.kind = FailureKind::kAuthentication,
          .message = place_ + " lets user '" + user + "' in with none of the keys of " +
                     (target.identity.empty() ? "" : target.identity + ", ") +
                     (has_agent ? "the agent, " : "") + "the identity files; it accepts " +
                     AuthenticationMethods(session_),
          .hint = HintFor(
              "'ssh HOST' must work without a question: ssh-copy-id, ssh-add, or identity= and "
              "user= in the hostfile",
              (user.empty() ? "" : user + "@") + target.host)};
}

}  // namespace ds::cli
