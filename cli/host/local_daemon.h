#pragma once

// LocalDaemon: the dsrund of this host, started as a child in a session of its own, or taken from
// those that wait (warm_daemon.h), and bound to the life of this object by a pipe or connection.
// When that closes (Close, the destructor, or the end of this process in any way, SIGKILL included)
// dsrund stops its ranks and ends.
//
// Calls go over a socket pair of which the daemon gets the other end: no path leads to it, so no
// other process can. The files of the job lie in a private 0700 folder under $XDG_RUNTIME_DIR or
// /tmp. Nothing is left there afterwards.
//
// Threads: one thread at a time; client() is as DaemonClient says.

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "cli/host/daemon_client.h"
#include "cli/host/warm_daemon.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {

struct LocalDaemonOptions {
  std::string job_id;
  std::filesystem::path dsrund;  // empty: beside the running program
  std::filesystem::path dsrank;  // empty: beside dsrund
  std::chrono::milliseconds start_timeout{10'000};
  bool take_warm = false;  // one that waits for work here (`dsrund --serve`), if it fits
  // What Prepare, and with it BeginLaunch, will be called with. One that waits answers along with
  // taking the job.
  std::optional<JobOpening> opening;
};

class LocalDaemon {
 public:
  // Offers the job to a daemon that waits, or starts one, which goes on while the caller does
  // something else. kNotFound when there is no dsrund. Until Await there is nothing else to call.
  static StatusOr<std::unique_ptr<LocalDaemon>> Begin(LocalDaemonOptions options);
  // Returns when the daemon takes calls. kUnavailable when it ended instead (it has said why on
  // stderr), with the ranks that it may have started.
  Status Await();
  // Both.
  static StatusOr<std::unique_ptr<LocalDaemon>> Start(LocalDaemonOptions options);

  // Closes and ignores the outcome.
  ~LocalDaemon();
  LocalDaemon(const LocalDaemon&) = delete;
  LocalDaemon& operator=(const LocalDaemon&) = delete;

  DaemonClient& client() { return *client_; }  // until Close
  // As the client's, but for what has been answered already: once, without a call.
  StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request);
  // kInternal for another launch than the one that has been done.
  std::future<StatusOr<v1::LaunchResponse>> BeginLaunch(const v1::LaunchRequest& request);
  // Whether a daemon that waits may be starting ranks already; until Await has returned.
  bool launch_offered() const { return offer_.has_value() && offer_->launch.has_value(); }
  // Whether ranks run that BeginLaunch has not been called for.
  bool ranks_run() const { return launched_.has_value(); }
  int pid() const { return pid_; }
  // Its private folder; gone after Close.
  const std::filesystem::path& folder() const { return folder_; }

  // Tells the daemon that nobody needs it any more and does not wait for its end. Idempotent.
  void HangUp();

  // Hangs up and waits until dsrund, and with it every rank, has ended (at most the job's grace); a
  // warm one until it has nothing left to do but to end. Idempotent. kInternal when dsrund did not
  // end cleanly.
  Status Close();

 private:
  explicit LocalDaemon(LocalDaemonOptions options) : options_(std::move(options)) {}
  void Offer();
  // For the events of ranks that the daemon may start along with taking the job.
  void AskAhead();
  // Makes the daemon that was offered the job this object's; false when it refuses.
  StatusOr<bool> TakeOffered();
  Status Spawn();
  Status AwaitReady();
  Status AwaitChildsEnd();
  Status AwaitWarmEnd();

  LocalDaemonOptions options_;
  UniqueFd connection_;  // the daemon's end, until it has it
  // What Await waits for: the answer to the offer, or the byte that says that the child is ready.
  std::optional<WarmOffer> offer_;
  UniqueFd ready_;
  std::optional<v1::PrepareResponse> prepared_;
  std::optional<v1::LaunchResponse> launched_;
  std::filesystem::path folder_;
  PrivateFolder own_folder_;  // the same, unless the daemon is a warm one, whose folder it is
  UniqueFd controller_pipe_;  // closing it tells dsrund that the controller is gone
  UniqueFd warm_lifeline_;    // instead of that, and of being its parent
  int pid_ = -1;              // -1 once it has ended
  std::unique_ptr<DaemonClient> client_;
};

}  // namespace ds::cli
