#pragma once

// RankProcess is one rank as an operating system process.
//
// A rank leads its own session and process group, without a terminal. It dies with the thread that
// started it (PR_SET_PDEATHSIG). It has exactly four descriptors: 0, 1, 2 and its end of the rank
// link, kRankLinkFd.
//
// Use it on one thread only, which must live as long as the ranks. Requires Linux 5.4 or newer
// (pidfd).

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "daemon/ranks/rank_child.h"
#include "daemon/ranks/rank_command.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

struct RankExit {
  int exit_code = 0;  // valid if signal is 0
  int signal = 0;
  bool core_dumped = false;
  std::uint64_t max_rss_bytes = 0;

  bool failed() const { return exit_code != 0 || signal != 0; }
};

class RankProcess {
 public:
  // Starts all programs and returns their processes in the order of the commands. Returns the first
  // error; then all started processes have been ended. Errors of execve (a missing file, a script
  // without interpreter) are reported here, with the rank and the program's name. The processes
  // start in the open control group `cgroup`; -1 = this process's group.
  static StatusOr<std::vector<RankProcess>> StartAll(const std::vector<RankCommand>& commands,
                                                     int cgroup = -1);

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable once the rank has ended
  // The daemon's ends of the rank's output pipes and its link, non-blocking. Each can be taken
  // once.
  UniqueFd TakeStdout() { return std::move(stdout_); }
  UniqueFd TakeStderr() { return std::move(stderr_); }
  UniqueFd TakeLink() { return std::move(link_); }
  // The write end of the rank's standard input, if the command requested it.
  UniqueFd TakeStdin() { return std::move(stdin_); }

  // Sends `signal` to the rank's full process group. Requires that the rank has not been reaped,
  // because its number could otherwise belong to another process.
  void SignalGroup(int signal) const;

  // Signals the rank's own process. Also requires that it has not been reaped.
  void SignalProcess(int signal) const;

  // Requires that pidfd() is readable. Returns the exit status and keeps the zombie until Reap.
  RankExit PeekExit() const;
  // Reaps the ended rank and frees its process number.
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

// Explains to the user why a rank could not be started: a child has failed between clone and
// execve. Requires that one of its steps failed. Pure, except that it inspects the file that could
// not be executed. Thread-safe.
Status MakeStartError(const RankChild& child, const RankCommand& command);

}  // namespace ds::daemon
