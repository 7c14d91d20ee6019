#include "cli/remote/ssh_config.h"

#include <glob.h>
#include <strings.h>
#include <sys/mman.h>

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
constexpr std::string_view kInclude = "include";
constexpr std::string_view kBlanks = " \t\r=";

// What stands behind Include; "" on any other line.
std::string_view PatternsOf(std::string_view line) {
  const std::size_t start = line.find_first_not_of(" \t");
  if (start == std::string_view::npos) return "";
  line.remove_prefix(start);
  if (line.size() <= kInclude.size() ||
      ::strncasecmp(line.data(), kInclude.data(), kInclude.size()) != 0 ||
      kBlanks.find(line[kInclude.size()]) == std::string_view::npos) {
    return "";
  }
  line.remove_prefix(kInclude.size());
  const std::size_t first = line.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? "" : line.substr(first);
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

StatusOr<SshConfig> SshConfig::Read(const fs::path& path, const fs::path& folder) {
  SshConfig config;
  StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) text = std::string();
  if (!text.ok()) return text.status();
  DS_RETURN_IF_ERROR(config.Add(*text, 0, folder, &config.path_));
  return config;
}

Status SshConfig::Add(const std::string& text, int depth, const fs::path& folder,
                      std::string* path) {
  std::string rewritten;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view patterns = PatternsOf(line);
    if (patterns.empty()) {
      rewritten += line + "\n";
      continue;
    }
    DS_ASSIGN_OR_RETURN(const std::string includes, IncludeLines(patterns, depth, folder));
    rewritten += includes;
  }
  UniqueFd file(::memfd_create("ssh_config", MFD_CLOEXEC));
  if (!file.valid()) return ErrnoError(errno, "memfd_create");
  DS_RETURN_IF_ERROR(WriteAll(file.get(), rewritten, "ssh_config"));
  *path = "/proc/self/fd/" + std::to_string(file.get());
  files_.push_back(std::move(file));
  return OkStatus();
}

StatusOr<std::string> SshConfig::IncludeLines(std::string_view patterns, int depth,
                                              const fs::path& folder) {
  if (depth == kMaxDepth) return InvalidArgumentError("too many levels of Include");
  std::string lines;
  std::istringstream words{std::string(patterns)};
  for (std::string pattern; words >> pattern;) {
    for (const std::string& match : Matches(pattern, folder)) {
      if (files_.size() == kMaxFiles) return InvalidArgumentError("too many files by Include");
      DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(match, kMaxConfigBytes));
      std::string path;
      DS_RETURN_IF_ERROR(Add(text, depth + 1, folder, &path));
      lines += "Include " + path + "\n";
    }
  }
  return lines;
}

}  // namespace ds::cli
