#include "daemon/host/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

namespace ds::daemon {
namespace {

constexpr std::size_t kRecordBytes = 8192;  // the longest the kernel hands out
constexpr std::size_t kKeptKills = 256;
constexpr std::string_view kKilled = "illed process ";

}  // namespace

std::optional<OomKillLine> ParseOomKill(std::string_view record) {
  // "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT\n", then lines about the device that begin with a
  // blank.
  const std::size_t semicolon = record.find(';');
  if (semicolon == std::string_view::npos) return std::nullopt;
  std::string_view text = record.substr(semicolon + 1);
  text = text.substr(0, text.find('\n'));
  const std::size_t killed = text.find(kKilled);
  if (killed == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(killed + kKilled.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
  if (error != std::errc() || pid <= 0) return std::nullopt;
  if (rest.substr(static_cast<std::size_t>(end - rest.data())).substr(0, 2) != " (") {
    return std::nullopt;
  }
  return OomKillLine{pid, std::string(text)};
}

KernelLog::KernelLog(const std::string& path)
    : log_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  Restart();
}

void KernelLog::Restart() {
  kills_.clear();
  if (log_.valid()) ::lseek(log_.get(), 0, SEEK_END);
}

std::optional<std::string> KernelLog::OomKillOf(pid_t pid) {
  ReadNew();
  for (auto kill = kills_.rbegin(); kill != kills_.rend(); ++kill) {
    if (kill->pid == pid) return kill->text;
  }
  return std::nullopt;
}

void KernelLog::ReadNew() {
  std::array<char, kRecordBytes> record;
  while (log_.valid()) {
    const ssize_t got = ::read(log_.get(), record.data(), record.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // some were overwritten
    if (got <= 0) return;
    auto kill = ParseOomKill({record.data(), static_cast<std::size_t>(got)});
    if (kill) kills_.push_back(*std::move(kill));
    if (kills_.size() > kKeptKills) kills_.pop_front();
  }
}

}  // namespace ds::daemon
