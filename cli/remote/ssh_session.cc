#include "cli/remote/ssh_session.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "cli/remote/read_ssh_settings.h"
#include "cli/remote/ssh_words.h"
#include "runtime/base/files.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

// Not null: OpenSSL would then ask for a passphrase on the terminal. A key with a passphrase is
// usable through the agent only.
constexpr char kNoPassphrase[] = "";

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

// Makes libssh read a text as its configuration.
bool ParseText(ssh_session session, const std::string& text) {
  const UniqueFd file(::memfd_create("ssh_config", MFD_CLOEXEC));
  return file.valid() && WriteAll(file.get(), text, "ssh_config").ok() &&
         ::ssh_options_parse_config(
             session, ("/proc/self/fd/" + std::to_string(file.get())).c_str()) == SSH_OK;
}

bool IsNo(const std::string& word) { return word == "no" || word == "false"; }

// Returns the socket of the user's agent; "" = none.
std::string FindAgent(const std::string& identity_agent) {
  if (identity_agent == "none") return "";
  if (!identity_agent.empty() && identity_agent != "SSH_AUTH_SOCK" && identity_agent[0] != '$') {
    return identity_agent;
  }
  const char* const agent = identity_agent.starts_with('$')
                                ? std::getenv(identity_agent.substr(1).c_str())
                                : std::getenv("SSH_AUTH_SOCK");
  return agent == nullptr ? "" : agent;
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
    return InterruptedFailure();
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
  const HostOutcome set = SetOptions(target);
  if (!set.ok()) return set;
  unsigned port = 0;
  ::ssh_options_get_port(session_, &port);
  const std::string user = GetOption(SSH_OPTIONS_USER);
  tokens_ = {.name = target.host,
             .host = GetOption(SSH_OPTIONS_HOST),
             .port = port == 0 ? kSshPort : static_cast<int>(port),
             .user = user.empty() ? FindLocalUser() : user};
  place_ = tokens_.host + " port " + std::to_string(tokens_.port);
  const HostOutcome identities = ReadIdentities();
  return identities.ok() ? ReadHostKeyPolicy() : identities;
}

HostOutcome SshSession::Connect(const std::string& known_keys) {
  const HostOutcome preferred = PreferKeys(known_keys);
  if (!preferred.ok()) return preferred;
  HostResult<UniqueFd> socket = OpenSocket();
  if (!socket.ok()) return socket.failure();
  const socket_t fd = socket->Release();  // libssh closes it
  ::ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
  return Handshake();
}

HostOutcome SshSession::ReadHostKeyPolicy() {
  const HostResult<HostKeyPolicy> policy = MakeHostKeyPolicy(settings_, tokens_);
  if (!policy.ok()) return policy.failure();
  host_keys_ = *policy;
  return HostOutcome();
}

HostOutcome SshSession::ReadIdentities() {
  std::vector<std::string> names = settings_.All("identityfile");
  if (names.empty()) names = {"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"};
  for (const std::string& name : names) {
    const std::vector<std::string> words = SplitConfigWords(name);
    if (words.empty() || words.front() == "none") continue;
    const HostResult<std::string> file = ExpandSshFile("IdentityFile", words.front(), tokens_);
    if (!file.ok()) return file.failure();
    if (std::find(identities_.begin(), identities_.end(), *file) == identities_.end()) {
      identities_.push_back(*file);
    }
  }
  const std::string agent = FindAgent(settings_.FirstWord("identityagent"));
  if (agent.empty()) return HostOutcome();
  const bool is_name = agent.starts_with('/') || agent.starts_with('~') || agent.starts_with('%');
  const HostResult<std::string> path =
      is_name ? ExpandSshFile("IdentityAgent", agent, tokens_) : HostResult<std::string>(agent);
  if (!path.ok()) return path.failure();
  agent_ = *path;
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

HostResult<UniqueFd> SshSession::OpenSocket() {
  attempt_->Enter({.doing = "connecting to " + place_});
  const std::string proxy = GetOption(SSH_OPTIONS_PROXYCOMMAND);
  if (proxy.empty()) {
    HostResult<UniqueFd> socket =
        Dial({tokens_.host, tokens_.port}, attempt_->deadline(), attempt_->interrupter());
    if (socket.ok()) peer_address_ = ReadPeerAddress(socket->get());
    return socket;
  }
  return StartProxy(ExpandProxyCommand(
      proxy,
      {.host = tokens_.host, .port = tokens_.port, .user = tokens_.user, .name = tokens_.name}));
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

// libssh rejects some host names without an error text.
HostFailure SshSession::DescribeBadOptions(const std::string& name) const {
  const std::string reason = ::ssh_get_error(session_);
  const std::string fault = reason.empty() ? FindNameFault(name) : "";
  if (!fault.empty()) {
    return {.kind = FailureKind::kName,
            .message = "'" + Printable(name) + "' is no name of a host: " + fault,
            .hint = "is it spelt right? give its address by address= in the hostfile"};
  }
  return {.kind = FailureKind::kStart,
          .message = "SSH options: " + (reason.empty() ? "libssh rejects one of them" : reason),
          .hint = "look at ~/.ssh/config and at the host's line in the hostfile"};
}

HostOutcome SshSession::SetOptions(const RemoteTarget& target) {
  HostResult<SshSettings> settings = ReadSshSettings(target, attempt_);
  if (!settings.ok()) return settings.failure();
  settings_ = *std::move(settings);
  const bool good = SetText(session_, SSH_OPTIONS_SSH_DIR, FindHomeDirectory() + "/.ssh") &&
                    SetText(session_, SSH_OPTIONS_HOST, target.host) &&
                    ParseText(session_, settings_.TextForLibssh()) &&
                    // The hostfile overrides the configuration.
                    SetText(session_, SSH_OPTIONS_HOST, target.address) &&
                    SetText(session_, SSH_OPTIONS_USER, target.user) &&
                    (target.port == 0 || SetNumber(session_, SSH_OPTIONS_PORT, target.port)) &&
                    // Strict checking, regardless of the configuration, and no log of libssh on
                    // the user's terminal.
                    SetNumber(session_, SSH_OPTIONS_STRICTHOSTKEYCHECK, 1) &&
                    SetNumber(session_, SSH_OPTIONS_LOG_VERBOSITY, SSH_LOG_NONE);
  return good ? HostOutcome()
              : DescribeBadOptions(target.address.empty() ? target.host : target.address);
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

// Asks the agent to log in with each of its keys.
int SshSession::TryAgent() {
  if (agent_.empty()) return SSH_AUTH_DENIED;
  attempt_->Enter({"asking the SSH agent " + agent_,
                   "'ssh-add -l' must answer at once; without SSH_AUTH_SOCK no agent is asked"});
  if (!SetText(session_, SSH_OPTIONS_IDENTITY_AGENT, agent_)) return SSH_AUTH_DENIED;
  return ::ssh_userauth_agent(session_, nullptr);
}

// Logs in with the key in the file; SSH_AUTH_DENIED if it contains no usable key.
int SshSession::TryIdentity(const std::string& path) {
  attempt_->Enter({"reading the key " + path, "does its file system hang?"});
  ssh_key key = nullptr;
  if (::ssh_pki_import_privkey_file(path.c_str(), kNoPassphrase, nullptr, nullptr, &key) !=
      SSH_OK) {
    if (::access(path.c_str(), R_OK) != 0 && errno != ENOENT) {
      unread_ += "; " + ErrnoError(errno, path).message();
    }
    return SSH_AUTH_DENIED;
  }
  attempt_->Enter({.doing = "logging in with the key " + path});
  const int result = ::ssh_userauth_publickey(session_, nullptr, key);
  ::ssh_key_free(key);
  return result;
}

HostOutcome SshSession::Authenticate(const RemoteTarget& target) {
  int result = ::ssh_userauth_none(session_, nullptr);
  if (result == SSH_AUTH_DENIED && !target.identity.empty()) result = TryIdentity(target.identity);
  if (!IsNo(settings_.FirstWord("pubkeyauthentication"))) {
    if (result == SSH_AUTH_DENIED) result = TryAgent();
    for (const std::string& path : identities_) {
      if (result == SSH_AUTH_DENIED && path != target.identity) result = TryIdentity(path);
    }
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
  return {.kind = FailureKind::kAuthentication,
          .message = place_ + " lets user '" + user + "' in with none of the keys of " +
                     (target.identity.empty() ? "" : target.identity + ", ") +
                     (agent_.empty() ? "" : "the agent, ") + "the identity files; it accepts " +
                     AuthenticationMethods(session_) + unread_,
          .hint = HintFor(
              "'ssh HOST' must work without a question: ssh-copy-id, ssh-add, or identity= and "
              "user= in the hostfile",
              (user.empty() ? "" : user + "@") + target.host)};
}

}  // namespace ds::cli
