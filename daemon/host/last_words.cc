#include "daemon/host/last_words.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "runtime/base/files.h"
#include "runtime/base/host_name.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// Returns "2026-11-29T22:10:03Z ".
std::string FormatTime(std::int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ ", &parts)};
}

}  // namespace

void LastWords::Add(std::string_view bytes, std::int64_t unix_seconds) {
  while (!bytes.empty()) {
    if (!in_line_) Append(FormatTime(unix_seconds));
    const std::size_t end = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
    Append(bytes.substr(0, end));
    in_line_ = bytes[end - 1] != '\n';
    bytes.remove_prefix(end);
  }
}

void LastWords::Append(std::string_view bytes) {
  if (!text_.empty() && text_.size() + bytes.size() > 2 * kMostBytes) {
    const std::size_t surplus = text_.size() - std::min(text_.size(), kMostBytes);
    text_.erase(0, std::min(text_.find('\n', surplus), text_.size() - 1) + 1);
  }
  bytes.remove_prefix(bytes.size() - std::min(bytes.size(), kMostBytes));
  text_ += bytes;
}

std::string_view LastWords::text() const {
  std::string_view text = text_;
  if (text.size() <= kMostBytes) return text;
  text.remove_prefix(text.size() - kMostBytes);
  text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

Status LastWords::Leave(const std::string& path, std::string_view end,
                        std::int64_t unix_seconds) const {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return ErrnoError(error.value(), folder.string());
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoError(errno, path);
  std::string all(text());
  if (in_line_) all += '\n';
  return WriteAll(file.get(), all.append(FormatTime(unix_seconds)).append(end).append("\n"), path);
}

void RemoveLastWords(const std::string& path) { ::unlink(path.c_str()); }

std::string FindLastWordsPath(const std::string& job_id) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return "";
  std::string name = job_id + "." + HostName("host");
  std::replace(name.begin(), name.end(), '/', '_');
  return std::string(home) + "/.cache/dsrun/log/" + name;
}

}  // namespace ds::daemon
