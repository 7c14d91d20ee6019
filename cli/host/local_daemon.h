#pragma once

// LocalDaemon: the client of this machine's dsrund, which it starts as a child in a session of its
// own, bound to the life of this object by a pipe. When that closes (Close, the destructor, or the
// end of this process in any way, SIGKILL included) dsrund stops its ranks and ends. Where dsrund
// itself is killed its guardian ends what is left, and where both are killed once dsrund takes
// calls Close does, as far as control groups hold it (runtime/process/owned_cgroup.h).
//
// Calls go over a socket pair of which the daemon gets the other end: no path leads to it, so no
// other process can. The files of the job lie in a private 0700 folder under $XDG_RUNTIME_DIR or
// /tmp. Nothing is left there afterwards.
//
// Threads: as HostDaemon says; Start and Close on one.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cli/host/daemon_client.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {

struct LocalDaemonOptions {
  std::string job_id;
  std::filesystem::path dsrund;  // empty: beside the running program
  std::filesystem::path dsrank;  // empty: beside dsrund
  std::chrono::milliseconds start_timeout{10'000};
  int interrupt_fd = -1;  // a start ends when this is readable; stays the caller's
};

class LocalDaemon final : public DaemonClient {
 public:
  // Returns when the daemon takes calls. kNotFound when there is no dsrund, kUnavailable when it
  // ended instead (the message, or stderr, has its reason), kCancelled when the start was
  // interrupted. After an error no process is left.
  static StatusOr<std::unique_ptr<LocalDaemon>> Start(LocalDaemonOptions options);

  // Closes and ignores the outcome.
  ~LocalDaemon() override;
  LocalDaemon(const LocalDaemon&) = delete;
  LocalDaemon& operator=(const LocalDaemon&) = delete;

  // This is dsrund itself, which ends before its guardian does (daemon/main.cc).
  int pid() const { return daemon_pid_; }
  // Its private folder; gone after Close.
  const std::filesystem::path& folder() const { return folder_.path(); }

  // Does not wait for the daemon's end. Idempotent.
  void HangUp() override { controller_pipe_.Reset(); }
  // Kills dsrund as well, which may have been stopped; its guardian ends its ranks.
  void Abandon() override;
  void AwaitProcesses(const NoticeCallback& notice) override { static_cast<void>(Close(notice)); }

  // Hangs up and waits until dsrund, and with it every rank, has ended: after the job's grace,
  // unless dsrund has been stopped or hangs, which only Kill ends. A guardian that has not ended 10
  // s after dsrund is killed. Idempotent. kInternal when they did not end cleanly. `notice` is told
  // what it waits for when that takes longer than a second.
  Status Close(const NoticeCallback& notice = nullptr);

  // These two from any thread, while another waits in Close or in a call.
  // Names who has not ended, and whom Kill would kill; "" when all have.
  std::string DescribeWait();
  // SIGKILL to dsrund, and thereby to its ranks; when dsrund has ended to its guardian, if that is
  // whom DescribeWait has named. False when there was nobody to kill.
  bool Kill() const;

 private:
  LocalDaemon(LocalDaemonOptions options, UniqueFd connection)
      : DaemonClient(options.job_id, std::move(connection)), options_(std::move(options)) {}
  // `connection` is the daemon's end; the line that says that it is ready comes from the result.
  StatusOr<UniqueFd> Spawn(const UniqueFd& connection);
  Status AwaitReady(const UniqueFd& ready);
  Status ReapGuardian(const NoticeCallback& notice);
  void AwaitGuardian(const NoticeCallback& notice);
  void TellOfWait(const NoticeCallback& notice);
  // For a guardian that could not.
  void EndWhatIsLeft(const NoticeCallback& notice);

  const LocalDaemonOptions options_;
  PrivateFolder folder_;
  UniqueFd controller_pipe_;  // closing it tells dsrund that the controller is gone
  bool closed_ = false;
  bool refused_ = false;   // dsrund has said why it does not start
  int guardian_pid_ = -1;  // our child
  int daemon_pid_ = -1;
  UniqueFd guardian_;  // their pidfds
  UniqueFd daemon_;
  std::atomic<bool> guardian_named_ = false;
};

}  // namespace ds::cli
