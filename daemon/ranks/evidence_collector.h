#pragma once

// EvidenceCollector collects this host's evidence about the end of a rank: out-of-memory kills (the
// memory group's count, the kernel's log), and the usage of /dev/shm.
//
// Not thread-safe.

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

// Parses a record "...;Out of memory: Killed process 17 (name) total-vm:...", from the machine or a
// memory group. Returns nothing for any other record.
std::optional<OomKillLine> ParseOomKill(std::string_view record);

// KernelLog finds messages of the out-of-memory killer about ended processes, if this user may read
// the log.
class KernelLog {
 public:
  // Reads messages logged from now on. It stays empty if `path` cannot be read.
  explicit KernelLog(const std::string& path = "/dev/kmsg");

  bool readable() const { return log_.valid(); }

  // Drops earlier messages and reads those logged from now on.
  void Restart();

  // Returns the message about the kill of `pid`.
  std::optional<std::string> FindOomKill(pid_t pid);

 private:
  void ReadNew();

  UniqueFd log_;
  std::deque<OomKillLine> kills_;  // the latest kills
};

class EvidenceCollector {
 public:
  // Finds the sources and counts from now on. `root` is "/" except in tests.
  explicit EvidenceCollector(const std::filesystem::path& root = "/");

  // Counts from now on. Earlier kills do not explain the end of these ranks.
  void Restart();

  const OwnCgroups& cgroups() const { return cgroups_; }

  // Records the usage of /dev/shm. Memory that dead ranks release would hide it later.
  void Sample();

  // Returns the evidence about this end in the fields oom_killed, oom, shared_memory and
  // host_memory_bytes. A counted kill is attributed to one rank only. `exit` must be a failure
  // outside a stop.
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
