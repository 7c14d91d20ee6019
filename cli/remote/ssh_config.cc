#include "cli/remote/ssh_config.h"

#include <glob.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/remote/remote_target.h"
#include "cli/remote/ssh_patterns.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{4} << 20;
constexpr int kMaxDepth = 16;  // OpenSSH's
constexpr int kMaxFiles = 256;
constexpr std::string_view kBlanks = " \t\r=";

bool IsWord(std::string_view text, std::string_view word) {
  return text.size() == word.size() && ::strncasecmp(text.data(), word.data(), word.size()) == 0;
}

// A line's first word, and the text after it without leading blanks.
struct ConfigLine {
  std::string_view keyword;
  std::string_view rest;
};

ConfigLine SplitLine(std::string_view line) {
  const auto skip = [&line](std::size_t count) {
    line.remove_prefix(std::min(count, line.size()));
  };
  skip(line.find_first_not_of(" \t"));
  const std::string_view keyword = line.substr(0, line.find_first_of(kBlanks));
  skip(keyword.size());
  skip(line.find_first_not_of(kBlanks));
  return {keyword, line};
}

// Removes a comment, and blanks, from the end.
std::string_view WithoutComment(std::string_view rest) {
  bool quoted = false;
  for (std::size_t at = 0; at < rest.size(); ++at) {
    if (rest[at] == '"') quoted = !quoted;
    const bool begins_word = at == 0 || rest[at - 1] == ' ' || rest[at - 1] == '\t';
    if (rest[at] != '#' || !begins_word || quoted) continue;
    rest = rest.substr(0, at);
    break;
  }
  return rest.substr(0, rest.find_last_not_of(" \t\r") + 1);
}

HostFailure Bad(const std::string& message) {
  return {
      .kind = FailureKind::kStart,
      .message = message,
      .hint = "the SSH configuration must be readable; 'ssh -G HOST' shows what ssh makes of it"};
}

// For glob: what does not exist has no match, and everything else is an error.
int IsError(const char* /*path*/, int error) { return error == ENOENT || error == ENOTDIR ? 0 : 1; }

bool IsFolder(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

// Returns the files that match a pattern of Include.
HostResult<std::vector<std::string>> FindIncluded(std::string pattern, const fs::path& folder) {
  if (pattern.starts_with("~/")) {
    pattern = FindHomeDirectory() + pattern.substr(1);
  } else if (!pattern.starts_with('/') && !pattern.starts_with('~')) {
    pattern = (folder / pattern).string();
  }
  std::vector<std::string> paths;
  // glob takes a file that cannot be looked at for a missing one.
  if (pattern.find_first_of("*?[\\") == pattern.npos && pattern.starts_with('/')) {
    if (!IsFolder(pattern.c_str())) paths.push_back(std::move(pattern));
    return paths;
  }
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_TILDE, IsError, &found);
  for (std::size_t i = 0; result == 0 && i < found.gl_pathc; ++i) {
    if (!IsFolder(found.gl_pathv[i])) paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (result == 0 || result == GLOB_NOMATCH) return paths;
  return Bad("Include " + pattern + ": a folder in this name cannot be read");
}

// Replaces the tokens of a command of Match exec. Returns null for a token that only OpenSSH knows.
std::optional<std::string> ExpandCommand(std::string_view command,
                                         const std::vector<std::pair<char, std::string>>& values) {
  std::string text;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i] != '%') {
      text += command[i];
      continue;
    }
    const char token = ++i < command.size() ? command[i] : '\0';
    const auto value = std::find_if(values.begin(), values.end(),
                                    [&](const auto& each) { return each.first == token; });
    if (value == values.end()) return std::nullopt;
    text += value->second;
  }
  return text;
}

std::string LocalHostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

HostResult<SshConfig::Reading> SshConfig::Read(std::span<const File> files, const Query& query) {
  SshConfig config(&query);
  const HostOutcome first = config.ReadAll(files);
  if (!first.ok()) return first.failure();
  const std::string canonicalize = config.reading_.settings.FirstWord("canonicalizehostname");
  if (!canonicalize.empty() && !IsWord(canonicalize, "no") && !IsWord(canonicalize, "false") &&
      config.reading_.beyond.empty()) {
    config.reading_.beyond = "CanonicalizeHostname " + canonicalize;
  }
  if (config.wants_final_ && config.reading_.beyond.empty()) {
    config.is_final_ = true;
    config.final_name_ = config.host_name();
    const HostOutcome second = config.ReadAll(files);
    if (!second.ok()) return second.failure();
  }
  return std::move(config.reading_);
}

HostOutcome SshConfig::ReadAll(std::span<const File> files) {
  files_read_ = 0;
  for (const File& file : files) {
    folder_ = file.folder;
    const HostOutcome added = AddFile(file.path, {}, 0);
    if (!added.ok()) return added;
  }
  return HostOutcome();
}

HostOutcome SshConfig::AddFile(const fs::path& path, const Condition& within, int depth) {
  if (++files_read_ > kMaxFiles) return Bad(path.string() + ": too many files by Include");
  const StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return HostOutcome();
  if (!text.ok()) return Bad(text.status().message());
  return AddText(*text, within, depth);
}

HostOutcome SshConfig::AddText(const std::string& text, const Condition& within, int depth) {
  Condition condition = within;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto [keyword, rest] = SplitLine(line);
    if (keyword.empty() || keyword.starts_with('#')) continue;
    if (IsWord(keyword, "host")) {
      condition = DecideHost(rest, within);
    } else if (IsWord(keyword, "match")) {
      HostResult<Condition> decided = DecideMatch(rest, within);
      if (!decided.ok()) return decided.failure();
      condition = *std::move(decided);
    } else if (IsWord(keyword, "include")) {
      const HostOutcome included = Include(rest, condition, depth);
      if (!included.ok()) return included;
    } else {
      AddLine(keyword, rest, condition);
    }
  }
  return HostOutcome();
}

HostOutcome SshConfig::Include(std::string_view patterns, const Condition& condition, int depth) {
  if (condition.never) return HostOutcome();
  if (depth == kMaxDepth) return Bad("too many levels of Include in the SSH configuration");
  for (const std::string& pattern : SplitConfigWords(patterns)) {
    const HostResult<std::vector<std::string>> paths = FindIncluded(pattern, folder_);
    if (!paths.ok()) return paths.failure();
    for (const std::string& path : *paths) {
      const HostOutcome added = AddFile(path, condition, depth + 1);
      if (!added.ok()) return added;
    }
  }
  return HostOutcome();
}

SshConfig::Condition SshConfig::DecideHost(std::string_view patterns,
                                           const Condition& within) const {
  Condition decided = within;
  const std::string& name = is_final_ ? final_name_ : query_.host;
  if (!MatchesPatterns(name, SplitConfigWords(patterns, kBlanks))) decided.never = true;
  return decided;
}

HostResult<SshConfig::Condition> SshConfig::DecideMatch(std::string_view criteria,
                                                        const Condition& within) {
  Condition decided = within;
  const std::vector<std::string> words = SplitConfigWords(criteria, kBlanks);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool negated = words[i].starts_with('!');
    Criterion criterion{.name = Lowered(words[i]).substr(negated ? 1 : 0), .argument = {}};
    const bool is_final = criterion.name == "final";
    wants_final_ = wants_final_ || is_final;
    if (is_final || criterion.name == "canonical") {
      if (is_final_ == negated) decided.never = true;
      continue;
    }
    if (criterion.name == "all") continue;
    criterion.argument = i + 1 < words.size() ? words[++i] : "";
    if (decided.never) continue;  // commands do not run in vain
    const HostResult<std::optional<bool>> holds = Holds(criterion);
    if (!holds.ok()) return holds.failure();
    if (!holds->has_value()) {
      decided.beyond = "Match " + std::string(WithoutComment(criteria));
    } else if (**holds == negated) {
      decided.never = true;
    }
  }
  return decided;
}

HostResult<std::optional<bool>> SshConfig::Holds(const Criterion& criterion) {
  const auto matches = [&](const std::string& name) {
    return std::optional<bool>(MatchesPatterns(name, SplitCommas(criterion.argument)));
  };
  // Case does not count for hosts, unlike on Host lines.
  const auto matches_host = [&](const std::string& name) {
    return std::optional<bool>(
        MatchesPatterns(Lowered(name), SplitCommas(Lowered(criterion.argument))));
  };
  if (criterion.name == "host") return matches_host(host_name());
  if (criterion.name == "originalhost") return matches_host(query_.host);
  if (criterion.name == "user") return matches(user());
  if (criterion.name == "localuser") return matches(query_.local_user);
  if (criterion.name == "exec") return RunExec(criterion.argument);
  return std::optional<bool>();
}

HostResult<std::optional<bool>> SshConfig::RunExec(const std::string& command) {
  const std::string port = reading_.settings.FirstWord("port");
  const std::string local_host = LocalHostName();
  const std::optional<std::string> expanded =
      ExpandCommand(command, {{'%', "%"},
                              {'h', host_name()},
                              {'n', query_.host},
                              {'p', port.empty() ? "22" : port},
                              {'r', user()},
                              {'u', query_.local_user},
                              {'d', FindHomeDirectory()},
                              {'i', std::to_string(::getuid())},
                              {'l', local_host},
                              {'L', local_host.substr(0, local_host.find('.'))}});
  if (!expanded.has_value()) return std::optional<bool>();
  const HostResult<bool> succeeded = query_.run(*expanded);
  if (!succeeded.ok()) return succeeded.failure();
  return std::optional<bool>(*succeeded);
}

void SshConfig::AddLine(std::string_view keyword, std::string_view rest,
                        const Condition& condition) {
  if (condition.never) return;
  if (!condition.beyond.empty()) {
    if (reading_.beyond.empty()) reading_.beyond = condition.beyond;
    return;
  }
  // HostName is settled after the first reading.
  if (is_final_ && IsWord(keyword, "hostname")) return;
  reading_.settings.Add(keyword, WithoutComment(rest));
}

std::string SshConfig::host_name() const {
  const std::string name = reading_.settings.FirstWord("hostname");
  std::string expanded;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool is_host = name.compare(i, 2, "%h") == 0;
    const bool is_percent = name.compare(i, 2, "%%") == 0;
    expanded += is_host ? query_.host : std::string(1, name[i]);
    if (is_host || is_percent) ++i;
  }
  return name.empty() ? query_.host : expanded;
}

std::string SshConfig::user() const {
  if (!query_.user.empty()) return query_.user;
  const std::string user = reading_.settings.FirstWord("user");
  return user.empty() ? query_.local_user : user;
}

}  // namespace ds::cli
