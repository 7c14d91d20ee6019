#include "daemon/ranks/evidence_collector.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string>
#include <string_view>
#include <system_error>

namespace ds::daemon {
namespace {

constexpr std::size_t kRecordBytes = 8192;  // the kernel's maximum
constexpr std::size_t kRetainedKills = 256;
constexpr std::string_view kKilled = "illed process ";

struct Space {
  std::uint64_t total;
  std::uint64_t free;
};

std::optional<Space> MeasureSpace(const std::filesystem::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return Space{std::uint64_t{info.f_blocks} * info.f_frsize,
               std::uint64_t{info.f_bavail} * info.f_frsize};
}

std::uint64_t ReadHostMemory() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The kernel's log has the pids of the first namespace. In other namespaces the same pid is another
// process.
bool IsInFirstPidNamespace() {
  constexpr std::string_view kFirst = "pid:[4026531836]";  // PROC_PID_INIT_INO
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string() == kFirst;
}

}  // namespace

std::optional<OomKillLine> ParseOomKill(std::string_view record) {
  // The format is "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT\n", then lines about the device, which
  // begin with a blank.
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

std::optional<std::string> KernelLog::FindOomKill(pid_t pid) {
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
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // some records were overwritten
    if (got <= 0) return;
    auto kill = ParseOomKill({record.data(), static_cast<std::size_t>(got)});
    if (kill) kills_.push_back(*std::move(kill));
    if (kills_.size() > kRetainedKills) kills_.pop_front();
  }
}

EvidenceCollector::EvidenceCollector(const std::filesystem::path& root)
    : shared_memory_folder_(root / "dev/shm"),
      cgroups_(FindOwnCgroups(root)),
      kernel_log_(IsInFirstPidNamespace() ? (root / "dev/kmsg").string() : "") {
  Restart();
}

void EvidenceCollector::Restart() {
  kills_seen_ = ReadOomKills(cgroups_).value_or(0);
  kernel_log_.Restart();
  lowest_free_.reset();
  Sample();
}

void EvidenceCollector::Sample() {
  if (const auto space = MeasureSpace(shared_memory_folder_)) {
    lowest_free_ = std::min(space->free, lowest_free_.value_or(space->free));
  }
}

v1::RankExited EvidenceCollector::Collect(const RankExit& exit, pid_t pid) {
  v1::RankExited evidence;
  evidence.set_host_memory_bytes(ReadHostMemory());
  AddOom(exit, pid, &evidence);
  if (exit.signal == SIGBUS) AddSharedMemory(&evidence);
  return evidence;
}

void EvidenceCollector::AddOom(const RankExit& exit, pid_t pid, v1::RankExited* evidence) {
  v1::OomEvidence* oom = evidence->mutable_oom();
  oom->set_log_readable(kernel_log_.readable());
  if (const auto memory = ReadGroupMemory(cgroups_)) {
    oom->set_group_readable(true);
    oom->set_group_kills(memory->oom_kills - std::min(kills_seen_, memory->oom_kills));
    oom->set_group_limit_bytes(memory->limit.value_or(0));
    oom->set_group_peak_bytes(memory->peak.value_or(0));
    kills_seen_ = memory->oom_kills;
  }
  if (exit.signal != SIGKILL) return;
  if (auto line = kernel_log_.FindOomKill(pid)) oom->set_kernel_log(*std::move(line));
  evidence->set_oom_killed(oom->group_kills() > 0 || !oom->kernel_log().empty());
}

void EvidenceCollector::AddSharedMemory(v1::RankExited* evidence) {
  Sample();
  const auto space = MeasureSpace(shared_memory_folder_);
  if (!space) return;
  v1::SharedMemoryEvidence* found = evidence->mutable_shared_memory();
  found->set_total_bytes(space->total);
  found->set_free_bytes(space->free);
  found->set_lowest_free_bytes(*lowest_free_);
}

}  // namespace ds::daemon
