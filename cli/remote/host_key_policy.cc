#include "cli/remote/host_key_policy.h"

#include <strings.h>
#include <unistd.h>

#include <optional>

#include "cli/remote/read_ssh_settings.h"
#include "cli/remote/remote_target.h"

namespace ds::cli {
namespace {

bool IsOneOf(const std::string& word, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (::strcasecmp(word.c_str(), name) == 0) return true;
  }
  return false;
}

// Returns the value of the token '%' + `token`; null for one that is not supported.
std::optional<std::string> FindToken(char token, const SshTokens& tokens) {
  switch (token) {
    case '%':
      return "%";
    case 'd':
      return FindHomeDirectory();
    case 'h':
      return tokens.host;
    case 'i':
      return std::to_string(::getuid());
    case 'k':
      return tokens.alias.empty() ? tokens.name : tokens.alias;
    case 'n':
      return tokens.name;
    case 'p':
      return std::to_string(tokens.port);
    case 'r':
      return tokens.user;
    case 'u':
      return FindLocalUser();
    default:
      return std::nullopt;
  }
}

HostFailure Unsupported(const std::string& keyword, const std::string& what) {
  return {
      .kind = FailureKind::kHostKey,
      .message = keyword + " in the SSH configuration: the built-in SSH does not support " + what,
      .hint = "write it out, or leave it to OpenSSH with --launcher ssh-client"};
}

HostResult<std::vector<std::string>> ExpandFiles(const std::string& keyword,
                                                 const std::string& text, const SshTokens& tokens) {
  std::vector<std::string> files;
  for (const std::string& word : SplitConfigWords(text)) {
    if (IsOneOf(word, {"none"})) continue;
    HostResult<std::string> file = ExpandSshFile(keyword, word, tokens);
    if (!file.ok()) return file.failure();
    files.push_back(*std::move(file));
  }
  return files;
}

std::string Or(const std::string& text, const char* fallback) {
  return text.empty() ? fallback : text;
}

}  // namespace

HostResult<std::string> ExpandSshFile(const std::string& keyword, const std::string& word,
                                      const SshTokens& tokens) {
  std::string path;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word.compare(i, 2, "${") == 0) return Unsupported(keyword, "variables like ${HOME}");
    if (word[i] != '%') {
      path += word[i];
      continue;
    }
    const char token = ++i < word.size() ? word[i] : ' ';
    const std::optional<std::string> text = FindToken(token, tokens);
    if (!text.has_value()) return Unsupported(keyword, std::string("%") + token);
    path += *text;
  }
  if (path.starts_with("~/")) return FindHomeDirectory() + path.substr(1);
  if (path.starts_with('~')) return Unsupported(keyword, "other users' homes (" + path + ")");
  if (path.starts_with('/')) return path;
  return Unsupported(keyword, "names that depend on where it is started (" + path + ")");
}

HostResult<HostKeyPolicy> MakeHostKeyPolicy(const SshSettings& settings, const SshTokens& names) {
  HostKeyPolicy policy;
  const std::string strict = settings.FirstWord("stricthostkeychecking");
  policy.refuses_unknown_hosts =
      !strict.empty() && !IsOneOf(strict, {"no", "off", "false", "accept-new"});
  policy.hashes_names = IsOneOf(settings.FirstWord("hashknownhosts"), {"yes", "true"});
  SshTokens tokens = names;
  tokens.alias = settings.FirstWord("hostkeyalias");
  policy.known_name = tokens.alias.empty() ? names.host : tokens.alias;
  if (tokens.alias.empty()) policy.known_port = names.port;
  const auto users = ExpandFiles(
      "UserKnownHostsFile",
      Or(settings.First("userknownhostsfile"), "~/.ssh/known_hosts ~/.ssh/known_hosts2"), tokens);
  if (!users.ok()) return users.failure();
  policy.users_files = *users;
  const auto systems = ExpandFiles("GlobalKnownHostsFile",
                                   Or(settings.First("globalknownhostsfile"),
                                      "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"),
                                   tokens);
  if (!systems.ok()) return systems.failure();
  policy.systems_files = *systems;
  const auto revoked = ExpandFiles("RevokedHostKeys", settings.First("revokedhostkeys"), tokens);
  if (!revoked.ok()) return revoked.failure();
  if (!revoked->empty()) policy.revoked_keys = revoked->front();
  return policy;
}

}  // namespace ds::cli
