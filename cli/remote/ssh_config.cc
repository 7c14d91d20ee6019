#include "cli/remote/ssh_config.h"

#include <glob.h>
#include <strings.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <utility>

#include "cli/remote/ssh_patterns.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{4} << 20;
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

// A keyword with a value that libssh does not report, or not completely. The value is encoded and
// passed to libssh under the keyword `stand_in`, which libssh does report.
struct Carrier {
  std::string_view keyword;
  std::string_view stand_in;
  SshConfig::Part part;
};

constexpr Carrier kCarriers[] = {
    {"userknownhostsfile", "UserKnownHostsFile", SshConfig::kOptions},
    {"globalknownhostsfile", "GlobalKnownHostsFile", SshConfig::kOptions},
    {"stricthostkeychecking", "ProxyCommand", SshConfig::kKeys},
    {"hostkeyalias", "UserKnownHostsFile", SshConfig::kKeys},
    {"revokedhostkeys", "GlobalKnownHostsFile", SshConfig::kKeys},
    {"hashknownhosts", "Port", SshConfig::kKeys},
};

const Carrier* FindCarrier(std::string_view keyword) {
  for (const Carrier& carrier : kCarriers) {
    if (IsWord(keyword, carrier.keyword)) return &carrier;
  }
  return nullptr;
}

// Encodes a text as one word that libssh does not expand, split or unquote.
std::string Hex(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex = "x";
  for (const char c : text) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

bool SaysYes(std::string_view rest) {
  const std::size_t end = rest.find_last_not_of(" \t\r\"");
  const std::size_t start = std::min(rest.find_first_not_of('"'), rest.size());
  const std::string_view word = rest.substr(start, end == rest.npos ? 0 : end + 1 - start);
  return IsWord(word, "yes") || IsWord(word, "true");
}

// Returns the words of a line, without quotation marks, up to a comment.
std::vector<std::string> SplitWords(std::string_view line, std::string_view blanks) {
  std::vector<std::string> words;
  for (std::size_t at = 0;;) {
    at = line.find_first_not_of(blanks, at);
    if (at == line.npos || line[at] == '#') return words;
    std::string word;
    bool quoted = false;
    for (; at < line.size() && (quoted || blanks.find(line[at]) == blanks.npos); ++at) {
      if (line[at] == '"') {
        quoted = !quoted;
      } else {
        word += line[at];
      }
    }
    words.push_back(std::move(word));
  }
}

// Removes a comment from the end.
std::string_view WithoutComment(std::string_view rest) {
  bool quoted = false;
  for (std::size_t at = 0; at < rest.size(); ++at) {
    if (rest[at] == '"') quoted = !quoted;
    const bool begins_word = at == 0 || rest[at - 1] == ' ' || rest[at - 1] == '\t';
    if (rest[at] == '#' && begins_word && !quoted) return rest.substr(0, at);
  }
  return rest;
}

bool IsOneOf(std::string_view text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return IsWord(text, word); });
}

// Criteria of Match that libssh evaluates correctly.
constexpr std::string_view kLibsshsCriteria[] = {"user", "localuser", "exec"};
// Values of StrictHostKeyChecking that may accept an unknown host.
constexpr std::string_view kLenient[] = {"no", "off", "false", "accept-new"};

std::vector<std::string> Matches(std::string pattern, const fs::path& folder) {
  if (!pattern.starts_with('/') && !pattern.starts_with('~')) {
    pattern = (folder / pattern).string();
  }
  std::vector<std::string> paths;
  glob_t found{};
  if (::glob(pattern.c_str(), GLOB_TILDE, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      std::error_code ignored;
      if (!fs::is_directory(found.gl_pathv[i], ignored)) paths.emplace_back(found.gl_pathv[i]);
    }
  }
  ::globfree(&found);
  return paths;
}

}  // namespace

std::string SshConfig::Decode(std::string_view word) {
  if (!word.starts_with('x') || word.size() % 2 == 0) return "";
  std::string text;
  for (std::size_t i = 1; i < word.size(); i += 2) {
    const auto byte = ParseNumber<unsigned char>(word.substr(i, 2), 16);
    if (!byte) return "";
    text += static_cast<char>(*byte);
  }
  return text;
}

StatusOr<SshConfig> SshConfig::Read(std::span<const File> files, const std::string& host) {
  SshConfig config(host);
  for (const File& file : files) {
    config.folder_ = file.folder;
    const Status added = config.AddFile(file.path, {}, 0);
    if (!added.ok() && added.code() != StatusCode::kNotFound) {
      return added.WithContext(file.path.string());
    }
  }
  for (int part = 0; part < kPartCount; ++part) {
    UniqueFd& fd = config.fds_[part];
    fd.Reset(::memfd_create("ssh_config", MFD_CLOEXEC));
    if (!fd.valid()) return ErrnoError(errno, "memfd_create");
    DS_RETURN_IF_ERROR(WriteAll(fd.get(), config.texts_[part], "ssh_config"));
  }
  return config;
}

std::string SshConfig::path(Part part) const {
  return "/proc/self/fd/" + std::to_string(fds_[part].get());
}

Status SshConfig::AddFile(const fs::path& path, const Condition& within, int depth) {
  if (++files_read_ > kMaxFiles) return InvalidArgumentError("too many files by Include");
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return AddText(text, within, depth);
}

Status SshConfig::AddText(const std::string& text, const Condition& within, int depth) {
  Condition condition = within;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto [keyword, rest] = SplitLine(line);
    if (keyword.empty() || keyword.starts_with('#')) continue;
    if (IsWord(keyword, "host")) {
      condition = DecideHost(rest, within);
    } else if (IsWord(keyword, "match")) {
      condition = DecideMatch(rest, within);
    } else if (IsWord(keyword, "include")) {
      DS_RETURN_IF_ERROR(Include(rest, condition, depth));
    } else {
      AddLine(keyword, rest, condition);
    }
  }
  return OkStatus();
}

Status SshConfig::Include(std::string_view patterns, const Condition& condition, int depth) {
  if (condition.never) return OkStatus();
  if (depth == kMaxDepth) return InvalidArgumentError("too many levels of Include");
  for (const std::string& pattern : SplitWords(patterns, " \t\r")) {
    for (const std::string& match : Matches(pattern, folder_)) {
      DS_RETURN_IF_ERROR(AddFile(match, condition, depth + 1));
    }
  }
  return OkStatus();
}

SshConfig::Condition SshConfig::DecideHost(std::string_view patterns,
                                           const Condition& within) const {
  Condition decided = within;
  decided.line.clear();
  if (!MatchesPatterns(host_, SplitWords(patterns, kBlanks))) decided.never = true;
  return decided;
}

SshConfig::Condition SshConfig::DecideMatch(std::string_view criteria,
                                            const Condition& within) const {
  Condition decided = within;
  decided.line.clear();
  const std::vector<std::string> words = SplitWords(criteria, kBlanks);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool negated = words[i].starts_with('!');
    const std::string name = words[i].substr(negated ? 1 : 0);
    if (IsWord(name, "all")) continue;
    if (IsWord(name, "canonical") || IsWord(name, "final")) {
      // Host names are not canonicalised here, and there is no second pass.
      decided.unknown = decided.unknown || !negated;
      continue;
    }
    const std::string argument = i + 1 < words.size() ? words[++i] : "";
    const std::string_view line = WithoutComment(criteria);
    decided.line = "Match " + std::string(line.substr(0, line.find_last_not_of(kBlanks) + 1));
    const bool of_host = IsWord(name, "host");
    // These patterns ignore case; the patterns of Host lines do not.
    if (of_host || IsWord(name, "originalhost")) {
      const bool matches =
          MatchesPatterns(of_host ? host_name_ : host_, SplitWords(Lowered(argument), ","));
      if (matches == negated) decided.never = true;
    } else if (IsOneOf(name, kLibsshsCriteria)) {
      decided.criteria +=
          (decided.criteria.empty() ? "" : " ") + words[i - 1] + " \"" + argument + "\"";
    } else {
      decided.unknown = true;
    }
  }
  return decided;
}

void SshConfig::AddLine(std::string_view keyword, std::string_view rest,
                        const Condition& condition) {
  if (condition.never) return;
  const std::string_view value = WithoutComment(rest);
  if (condition.unknown) {
    if (passed_over_.empty()) passed_over_ = condition.line;
    const std::vector<std::string> words = SplitWords(value, kBlanks);
    const bool is_strict =
        IsWord(keyword, "stricthostkeychecking") && !words.empty() && !IsOneOf(words[0], kLenient);
    if (is_strict) Append(kKeys, "ProxyCommand " + Hex(value), {});
    return;
  }
  if (const Carrier* carrier = FindCarrier(keyword); carrier != nullptr) {
    const bool is_number = carrier->stand_in == "Port";
    return Append(carrier->part,
                  std::string(carrier->stand_in) + " " +
                      (is_number ? SaysYes(value) ? "1" : "2" : Hex(value)),
                  condition);
  }
  Append(kOptions, std::string(keyword) + " " + std::string(rest), condition);
  // With criteria that libssh evaluates, it is not known here whether this HostName applies.
  const std::vector<std::string> words = SplitWords(value, kBlanks);
  if (!IsWord(keyword, "hostname") || words.empty() || !condition.criteria.empty()) return;
  if (host_name_ == host_) host_name_ = words[0] == "%h" ? host_ : words[0];
}

void SshConfig::Append(Part part, const std::string& line, const Condition& condition) {
  if (criteria_[part] != condition.criteria) {
    criteria_[part] = condition.criteria;
    texts_[part] += "Match " + (condition.criteria.empty() ? "all" : condition.criteria) + "\n";
  }
  texts_[part] += line + "\n";
}

}  // namespace ds::cli
