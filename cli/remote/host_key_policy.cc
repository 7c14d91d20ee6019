#include "cli/remote/host_key_policy.h"

#include <strings.h>

#include <string_view>

#include "cli/remote/remote_target.h"

namespace ds::cli {
namespace {

bool IsOneOf(const std::string& word, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (::strcasecmp(word.c_str(), name) == 0) return true;
  }
  return false;
}

// Splits at blanks outside quotation marks.
std::vector<std::string> SplitWords(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  bool any = false;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\r';
    if (c == '"') {
      quoted = !quoted;
      any = true;
    } else if (blank && !quoted) {
      if (any) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (any) words.push_back(word);
  return words;
}

std::string OnlyWord(const std::string& text) {
  const std::vector<std::string> words = SplitWords(text);
  return words.empty() ? "" : words.front();
}

// Returns the value of the token '%' + `token`; null for a token that is not supported.
const std::string* FindToken(char token, const HostKeyNames& names, const std::string& alias,
                             std::string* storage) {
  switch (token) {
    case '%':
      *storage = "%";
      return storage;
    case 'd':
      *storage = FindHomeDirectory();
      return storage;
    case 'p':
      *storage = std::to_string(names.port);
      return storage;
    case 'h':
      return &names.host;
    case 'n':
      return &names.name;
    case 'r':
      return &names.user;
    case 'k':
      return alias.empty() ? &names.name : &alias;
    default:
      return nullptr;
  }
}

HostFailure Unsupported(const std::string& keyword, const std::string& what) {
  return {
      .kind = FailureKind::kHostKey,
      .message = keyword + " in the SSH configuration: the built-in SSH does not support " + what,
      .hint = "write it out, or leave it to OpenSSH with --launcher ssh-client"};
}

HostResult<std::string> ExpandFile(const std::string& keyword, const std::string& word,
                                   const HostKeyNames& names, const std::string& alias) {
  std::string path;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word.compare(i, 2, "${") == 0) return Unsupported(keyword, "variables like ${HOME}");
    if (word[i] != '%') {
      path += word[i];
      continue;
    }
    const char token = ++i < word.size() ? word[i] : ' ';
    std::string storage;
    const std::string* text = FindToken(token, names, alias, &storage);
    if (text == nullptr) return Unsupported(keyword, std::string("%") + token);
    path += *text;
  }
  if (path.starts_with("~/")) return FindHomeDirectory() + path.substr(1);
  if (path.starts_with('~')) return Unsupported(keyword, "other users' homes (" + path + ")");
  if (path.starts_with('/')) return path;
  return Unsupported(keyword, "names that depend on where it is started (" + path + ")");
}

HostResult<std::vector<std::string>> ExpandFiles(const std::string& keyword,
                                                 const std::string& text, const HostKeyNames& names,
                                                 const std::string& alias) {
  std::vector<std::string> files;
  for (const std::string& word : SplitWords(text)) {
    if (IsOneOf(word, {"none"})) continue;
    HostResult<std::string> file = ExpandFile(keyword, word, names, alias);
    if (!file.ok()) return file.failure();
    files.push_back(*std::move(file));
  }
  return files;
}

}  // namespace

HostResult<HostKeyPolicy> MakeHostKeyPolicy(const HostKeyWords& words, const HostKeyNames& names) {
  HostKeyPolicy policy;
  const std::string strict = OnlyWord(words.strict);
  policy.refuses_unknown_hosts =
      !strict.empty() && !IsOneOf(strict, {"no", "off", "false", "accept-new"});
  policy.hashes_names = IsOneOf(OnlyWord(words.hash), {"yes", "true"});
  const std::string alias = OnlyWord(words.alias);
  policy.known_name = alias.empty() ? names.host : alias;
  if (alias.empty()) policy.known_port = names.port;
  const auto users = ExpandFiles(
      "UserKnownHostsFile",
      words.users_files.empty() ? "~/.ssh/known_hosts ~/.ssh/known_hosts2" : words.users_files,
      names, alias);
  if (!users.ok()) return users.failure();
  policy.users_files = *users;
  const auto systems =
      ExpandFiles("GlobalKnownHostsFile",
                  words.systems_files.empty() ? "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
                                              : words.systems_files,
                  names, alias);
  if (!systems.ok()) return systems.failure();
  policy.systems_files = *systems;
  const auto revoked = ExpandFiles("RevokedHostKeys", words.revoked, names, alias);
  if (!revoked.ok()) return revoked.failure();
  if (!revoked->empty()) policy.revoked_keys = revoked->front();
  return policy;
}

}  // namespace ds::cli
