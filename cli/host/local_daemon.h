#pragma once

// LocalDaemon is the client of this machine's dsrund, which it starts as a child in a new session.
// A pipe binds the daemon to this object: when it closes (by Close, the destructor, or the end of
// this process, including SIGKILL), dsrund stops its ranks and ends. A pipe of the caller
// (controller_fd) binds it to all processes that hold its other end, and Adopt takes over the
// daemon of one that was killed. If dsrund itself is killed, its guardian ends the remaining
// processes. If both are killed after dsrund accepts calls, Close does it, as far as control groups
// contain the processes (runtime/process/owned_cgroup.h).
//
// Start connects by a socket pair, Adopt by a socket in the daemon's private folder
// (proto/local_socket.h). That folder, which only this user may enter, is below $XDG_RUNTIME_DIR or
// /tmp and also holds the files of the job. It is removed at the end.
//
// Thread-safe like HostDaemon, except that Start and Close are called on one thread.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cli/host/daemon_client.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {

struct LocalDaemonOptions {
  std::string job_id;
  std::filesystem::path dsrund;  // empty: in the folder of the running program
  std::filesystem::path dsrank;  // empty: in the folder of dsrund
  std::chrono::milliseconds start_timeout{10'000};
  int interrupt_fd = -1;  // cancels the start when readable; owned by the caller
  // The read end of the pipe that binds the daemon, if its write end does not depend on this
  // process alone; owned by the caller. -1: a pipe of its own.
  int controller_fd = -1;
};

class LocalDaemon final : public DaemonClient {
 public:
  // Starts the daemon and returns when it accepts calls. kNotFound: there is no dsrund.
  // kUnavailable: it ended instead; the message, or stderr, has the reason. kCancelled:
  // interrupted. After an error no process remains.
  static StatusOr<std::unique_ptr<LocalDaemon>> Start(LocalDaemonOptions options);

  // Takes over the daemon with this private folder from a process that has ended. kUnavailable: no
  // daemon accepts connections there.
  static StatusOr<std::unique_ptr<LocalDaemon>> Adopt(LocalDaemonOptions options,
                                                      const std::filesystem::path& folder);

  // Returns whether Adopt can take over the daemon: the folder's file system has sockets.
  bool CanBeAdopted() const;

  // Calls Close and ignores its result.
  ~LocalDaemon() override;
  LocalDaemon(const LocalDaemon&) = delete;
  LocalDaemon& operator=(const LocalDaemon&) = delete;

  // Returns the process id of dsrund itself, which ends before its guardian (daemon/main.cc).
  int pid() const { return daemon_pid_; }
  int guardian_pid() const { return guardian_pid_; }
  // Waits until the guardian of a dsrund that has ended has ended its processes, if it still is
  // one.
  static void AwaitGuardianOfEnded(int guardian);
  // Returns the daemon's private folder, which Close removes.
  const std::filesystem::path& folder() const { return folder_.path(); }

  // Does not wait for the daemon's end. Idempotent. Without effect on a daemon that is bound by the
  // caller's pipe.
  void HangUp() override { controller_pipe_.Reset(); }
  // Also kills dsrund, because it may be stopped; its guardian ends its ranks.
  void Abandon() override;
  void AwaitProcesses(const NoticeCallback& notice) override { static_cast<void>(Close(notice)); }

  // Hangs up and waits until dsrund and all ranks have ended. That takes at most the job's grace
  // period, unless dsrund is stopped or hangs; then only Kill ends it. Kills a guardian that has
  // not ended 10 s after dsrund. Idempotent. kInternal if they did not end cleanly. Calls `notice`
  // with the processes that it waits for, when that takes longer than a second.
  Status Close(const NoticeCallback& notice = nullptr);

  // The next two functions are thread-safe, also during Close or a call.
  //
  // Names the process that has not ended and that Kill would kill; "" if all have ended.
  std::string DescribeWait();
  // Sends SIGKILL to dsrund, which ends its ranks. If dsrund has ended, sends it to the guardian,
  // provided that DescribeWait has named it. Returns whether this or an earlier call, maybe of
  // another thread, has killed one of the two.
  bool Kill();

 private:
  LocalDaemon(LocalDaemonOptions options, UniqueFd connection)
      : DaemonClient(options.job_id, std::move(connection)), options_(std::move(options)) {}
  // `connection` is the daemon's end. The line that reports readiness arrives on the returned
  // descriptor.
  StatusOr<UniqueFd> Spawn(const UniqueFd& connection);
  Status AwaitReady(const UniqueFd& ready);
  Status ReapGuardian(const NoticeCallback& notice);
  void AwaitGuardian(const NoticeCallback& notice);
  void TellOfWait(const NoticeCallback& notice);
  // Does the guardian's work if it was killed.
  void EndRemainingProcesses(const NoticeCallback& notice);

  const LocalDaemonOptions options_;
  PrivateFolder folder_;
  UniqueFd controller_pipe_;  // closing it tells dsrund that the controller is gone
  bool closed_ = false;
  bool refused_ = false;   // dsrund has reported why it does not start
  int guardian_pid_ = -1;  // child of this process, unless adopted_
  bool adopted_ = false;
  int daemon_pid_ = -1;
  UniqueFd guardian_;  // pidfds of the two
  UniqueFd daemon_;
  std::atomic<bool> guardian_named_ = false;
  std::mutex kill_mutex_;
  bool killed_ = false;  // guarded by kill_mutex_
};

}  // namespace ds::cli
