#pragma once

// EvidenceCollector: finds what this host can prove about the end of a rank: the out-of-memory
// killer's marks (the memory group's count, the kernel's log), and how full /dev/shm was.
//
// Threads: one at a time.

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/ranks/rank_process.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/cgroups.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

struct OomKillLine {
  pid_t pid;
  std::string text;

  friend bool operator==(const OomKillLine&, const OomKillLine&) = default;
};

// The victim of a record "...;Out of memory: Killed process 17 (name) total-vm:...", of the machine
// or of a memory group; none for any other record.
std::optional<OomKillLine> ParseOomKill(std::string_view record);

// KernelLog has the words of the out-of-memory killer about the processes it ends, where this user
// may read them.
class KernelLog {
 public:
  // Hears what is logged from now on; nothing when `path` cannot be read.
  explicit KernelLog(const std::string& path = "/dev/kmsg");

  bool readable() const { return log_.valid(); }

  // Forgets what it has heard; hears what is logged from now on.
  void Restart();

  // Finds what the log says about the end of `pid`.
  std::optional<std::string> FindOomKill(pid_t pid);

 private:
  void ReadNew();

  UniqueFd log_;
  std::deque<OomKillLine> kills_;  // the latest ones
};

class EvidenceCollector {
 public:
  // Finds the places to look at and counts from now on. `root` is "/" but for tests.
  explicit EvidenceCollector(const std::filesystem::path& root = "/");

  // Counts from now on: what was before was not these ranks' end.
  void Restart();

  const OwnCgroups& cgroups() const { return cgroups_; }

  // Remembers how full /dev/shm is: what dead ranks gave back would hide it afterwards.
  void Sample();

  // Tells what is known about this end, in the fields oom_killed, oom, shared_memory and
  // host_memory_bytes. A kill that was counted is held against one rank only. `exit` failed while
  // nobody was stopping it.
  v1::RankExited Collect(const RankExit& exit, pid_t pid);

 private:
  void AddOom(const RankExit& exit, pid_t pid, v1::RankExited* evidence);
  void AddSharedMemory(v1::RankExited* evidence);

  const std::filesystem::path shared_memory_folder_;
  const OwnCgroups cgroups_;
  KernelLog kernel_log_;
  std::uint64_t kills_seen_ = 0;
  std::optional<std::uint64_t> lowest_free_;  // bytes of /dev/shm
};

}  // namespace ds::daemon
