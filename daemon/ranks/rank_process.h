#pragma once

// RankProcess is one rank as an operating system process.
//
// A rank leads its own session and process group, without a terminal. It dies with the thread that
// started it (PR_SET_PDEATHSIG). It has exactly four descriptors: 0, 1, 2 and its end of the rank
// link, kRankLinkFd.
//
// A process may take any time to execute its program: a file server may be slow, or not answer at
// all. Nothing here waits for that. Until then it can be signalled and killed as later.
//
// Use it on one thread only, which must live as long as the ranks. Requires Linux 5.4 or newer
// (pidfd).

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

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
  // Creates the process, which goes on to execute its program. It enters the control group whose
  // cgroup.procs is open as `group`; -1 = it stays in this process's group. After an error there is
  // no process.
  static StatusOr<RankProcess> Begin(RankCommand command, int group = -1);
  // Waits for a process that is still starting; see AbandonStart.
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  // True until FinishStart or AbandonStart.
  bool starting() const { return starting_ != nullptr; }
  // Readable once the process executes its program or has ended.
  int start_fd() const;
  // Requires that start_fd() is readable. Returns why the process could not execute its program (a
  // missing file, a script without interpreter); it has been reaped then.
  Status FinishStart();
  // After FinishStart: the errno with which the kernel has refused the control group; 0 = none.
  int group_errno() const { return group_errno_; }
  // Returns the step of the start: "execve of /home/me/venv/bin/python3 on nfs4".
  std::string DescribeStart() const;
  // Call instead of FinishStart for a killed process that does not end. It may still use memory of
  // this process, which is therefore never freed.
  void AbandonStart();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable once the rank has ended
  // The daemon's ends of the rank's output pipes and its link, non-blocking. Each can be taken
  // once.
  UniqueFd TakeStdout() { return std::move(stdout_); }
  UniqueFd TakeStderr() { return std::move(stderr_); }
  UniqueFd TakeLink() { return std::move(link_); }
  // The write end of the rank's standard input, if the command requested it.
  UniqueFd TakeStdin() { return std::move(stdin_); }

  // Sends `signal` to the rank's full process group, which a starting process may not have made
  // yet. Requires that the rank has not been reaped, because its number could otherwise belong to
  // another process.
  void SignalGroup(int signal) const;

  // Signals the rank's own process. Also requires that it has not been reaped.
  void SignalProcess(int signal) const;

  // Requires that pidfd() is readable. Returns the exit status and keeps the zombie until Reap.
  RankExit PeekExit() const;
  // Reaps the ended rank and frees its process number.
  RankExit Reap();

 private:
  class Starting;
  RankProcess();

  std::unique_ptr<Starting> starting_;
  int group_errno_ = 0;
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
