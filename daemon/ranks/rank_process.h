#pragma once

// RankProcess: one rank as an operating system process.
//
// A rank leads a session and a process group of its own, without a terminal, dies with the thread
// that started it (PR_SET_PDEATHSIG), and has exactly four descriptors: 0, 1, 2 and its end of the
// rank link, kRankLinkFd.
//
// Threads: one thread, the one that lives as long as the ranks.
// Linux 5.4 or newer (pidfd).

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "daemon/ranks/rank_command.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

struct RankExit {
  int exit_code = 0;  // when signal is 0
  int signal = 0;
  bool core_dumped = false;
  std::uint64_t max_rss_bytes = 0;

  bool failed() const { return exit_code != 0 || signal != 0; }
};

class RankProcess {
 public:
  // Starts all programs; their processes are in the order of the commands. An error, the first,
  // means that no process is left. What execve itself refuses (a missing file, a script without
  // interpreter) is reported here, with the rank and the program's name.
  // `cgroup` is an open control group for them to begin in; -1 = this process's.
  static StatusOr<std::vector<RankProcess>> StartAll(const std::vector<RankCommand>& commands,
                                                     int cgroup = -1);

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable once the rank has ended
  // Our ends of what the rank writes to and of its link, non-blocking; each can be taken once.
  UniqueFd TakeStdout() { return std::move(stdout_); }
  UniqueFd TakeStderr() { return std::move(stderr_); }
  UniqueFd TakeLink() { return std::move(link_); }
  // The end of the pipe that the rank reads from, when the command asked for it.
  UniqueFd TakeStdin() { return std::move(stdin_); }

  // Sends `signal` to the rank's whole process group. Requires: not reaped (its number is its own
  // until then, so nobody else's process is ever hit).
  void SignalGroup(int signal) const;

  // Signals the rank's own process. Same requirement.
  void SignalProcess(int signal) const;

  // Requires: pidfd() is readable. Ended, but kept as a zombie until Reap.
  RankExit PeekExit() const;
  // Takes the ended rank's status and frees its number.
  RankExit Reap();

 private:
  class Starting;
  RankProcess() = default;

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd stdin_;
  UniqueFd stdout_;
  UniqueFd stderr_;
  UniqueFd link_;
};

}  // namespace ds::daemon
