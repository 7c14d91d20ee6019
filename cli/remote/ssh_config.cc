#include "cli/remote/ssh_config.h"

#include <glob.h>
#include <strings.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <utility>

#include "runtime/base/files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{4} << 20;
constexpr int kMaxDepth = 16;  // OpenSSH's
constexpr std::size_t kMaxFiles = 256;
constexpr std::string_view kBlanks = " \t\r=";

bool IsWord(std::string_view text, std::string_view word) {
  return text.size() == word.size() && ::strncasecmp(text.data(), word.data(), word.size()) == 0;
}

// A line's first word, and what stands behind it without the blanks around.
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

// A keyword that libssh does not tell about, or not whole, and the one in whose place it is read.
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

// One word without anything that libssh would expand, split or unquote.
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

bool HasHostCriterion(std::string_view criteria) {
  while (!criteria.empty()) {
    const ConfigLine split = SplitLine(criteria);
    if (IsWord(split.keyword, "host")) return true;
    criteria = split.rest;
  }
  return false;
}

std::vector<std::string> Matches(std::string pattern, const fs::path& folder) {
  if (pattern.size() > 1 && pattern.front() == '"' && pattern.back() == '"') {
    pattern = pattern.substr(1, pattern.size() - 2);
  }
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
  std::string text;
  for (std::size_t i = 1; i + 1 < word.size(); i += 2) {
    text += static_cast<char>(std::stoi(std::string(word.substr(i, 2)), nullptr, 16));
  }
  return text;
}

StatusOr<SshConfig> SshConfig::Read(const fs::path& path, const fs::path& folder) {
  SshConfig config;
  config.folder_ = folder;
  StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) text = std::string();
  if (!text.ok()) return text.status();
  DS_ASSIGN_OR_RETURN(config.paths_, config.Add(*text, false, 0));
  return config;
}

StatusOr<SshConfig::Parts> SshConfig::Add(const std::string& text, bool below_match_host,
                                          int depth) {
  Parts parts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto [keyword, rest] = SplitLine(line);
    const bool is_match = IsWord(keyword, "match");
    if (IsWord(keyword, "include")) {
      DS_RETURN_IF_ERROR(Include(rest, below_match_host, depth, &parts));
    } else if (is_match || IsWord(keyword, "host")) {
      below_match_host = is_match && HasHostCriterion(rest);
      for (std::string& part : parts) part += line + "\n";
    } else if (const Carrier* carrier = FindCarrier(keyword); carrier != nullptr) {
      Part part = carrier->part;
      if (below_match_host) part = part == kOptions ? kMatchHost : kMatchHostKeys;
      const bool is_number = carrier->stand_in == "Port";
      parts[part] += std::string(carrier->stand_in) + " " +
                     (is_number ? SaysYes(rest) ? "1" : "2" : Hex(rest)) + "\n";
    } else {
      const Part own = below_match_host ? kMatchHost : kOptions;
      parts[IsWord(keyword, "hostname") ? kHostNames : own] += line + "\n";
    }
  }
  for (std::string& part : parts) {
    UniqueFd file(::memfd_create("ssh_config", MFD_CLOEXEC));
    if (!file.valid()) return ErrnoError(errno, "memfd_create");
    DS_RETURN_IF_ERROR(WriteAll(file.get(), part, "ssh_config"));
    part = "/proc/self/fd/" + std::to_string(file.get());
    files_.push_back(std::move(file));
  }
  return parts;
}

Status SshConfig::Include(std::string_view patterns, bool below_match_host, int depth,
                          Parts* parts) {
  if (depth == kMaxDepth) return InvalidArgumentError("too many levels of Include");
  std::istringstream words{std::string(patterns)};
  for (std::string pattern; words >> pattern;) {
    for (const std::string& match : Matches(pattern, folder_)) {
      if (files_.size() >= kMaxFiles * kPartCount) {
        return InvalidArgumentError("too many files by Include");
      }
      DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(match, kMaxConfigBytes));
      DS_ASSIGN_OR_RETURN(const Parts included, Add(text, below_match_host, depth + 1));
      for (int part = 0; part < kPartCount; ++part) {
        (*parts)[part] += "Include " + included[part] + "\n";
      }
    }
  }
  return OkStatus();
}

}  // namespace ds::cli
