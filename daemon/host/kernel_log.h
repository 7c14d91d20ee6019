#pragma once

// KernelLog: what the out-of-memory killer says about the processes it ends, where this user may
// read the kernel's log.
//
// Threads: one at a time.

#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/unique_fd.h"

namespace ds::daemon {

struct OomKillLine {
  pid_t pid;
  std::string text;

  friend bool operator==(const OomKillLine&, const OomKillLine&) = default;
};

// The victim of a record "...;Out of memory: Killed process 17 (name) total-vm:...", of the machine
// or of a memory group; none for any other record.
std::optional<OomKillLine> ParseOomKill(std::string_view record);

class KernelLog {
 public:
  // Hears what is logged from now on; nothing when `path` cannot be read.
  explicit KernelLog(const std::string& path = "/dev/kmsg");

  bool readable() const { return log_.valid(); }

  // Forgets what it has heard; hears what is logged from now on.
  void Restart();

  // Finds what the log says about the end of `pid`.
  std::optional<std::string> OomKillOf(pid_t pid);

 private:
  void ReadNew();

  UniqueFd log_;
  std::deque<OomKillLine> kills_;  // the latest ones
};

}  // namespace ds::daemon
