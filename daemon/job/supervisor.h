#pragma once

// Supervisor manages one job on one host. It answers the service's requests, owns the current
// generation, and decides when the daemon ends. The daemon ends when its controller is gone: its
// pipe or its connections have closed, or no Renew came within the lease. It also ends on SIGTERM,
// SIGINT, SIGHUP or a releasing Renew. In all cases it stops its ranks first. While ending it
// starts nothing, but can still be watched and stopped.
//
// When a lease has expired, the ranks' grace is bounded (proto/lease.h). If this process has been
// stopped or hangs, the kernel enforces that bound (daemon/host/death_timer.h).
//
// Create and use it on the loop's thread, except Renew, which is thread-safe and does not wait for
// the loop. SIGCHLD and the signals above must be blocked in every thread of the process.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/host/death_timer.h"
#include "daemon/inspect/inspect_host.h"
#include "daemon/inspect/preflight.h"
#include "daemon/job/daemon_duty.h"
#include "daemon/job/daemon_lease.h"
#include "daemon/job/generation.h"
#include "daemon/logs/event_log.h"
#include "daemon/loop/event_loop.h"
#include "daemon/ranks/evidence_collector.h"
#include "daemon/ranks/rank_command.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/port_lease.h"

namespace ds::daemon {

struct SupervisorOptions {
  std::string job_id;
  std::filesystem::path folder;  // private, exists
  std::filesystem::path dsrank;  // empty if this host has none
  std::vector<std::string> environment;
  rlimit64 open_files{RLIM64_INFINITY, RLIM64_INFINITY};  // of the ranks; see HostContext
  UniqueFd controller;  // closes when the controller ends; may be invalid (no controller)
  // Without a Renew for this time the controller counts as gone; 0 = no limit.
  std::chrono::nanoseconds lease{0};
  std::chrono::nanoseconds heartbeat_interval = std::chrono::seconds(2);
  std::string log_path;          // for PrepareResponse
  bool survives_hangup = false;  // ignores SIGHUP, because its session may end
};

class Supervisor {
 public:
  // `loop` must outlive the supervisor.
  static StatusOr<std::unique_ptr<Supervisor>> Create(EventLoop* loop, SupervisorOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // The daemon's own, "NAME=value". It never changes; callable on any thread.
  const std::vector<std::string>& environment() const { return options_.environment; }

  // Prepare and Launch have two parts on the loop. Between them the caller reads the file system,
  // which may take long (worker.h).
  //
  // Returns the input of ExamineHost.
  StatusOr<PreflightContext> BeginPrepare(const v1::PrepareRequest& request);
  // Reserves the port and adds it to the response.
  StatusOr<v1::PrepareResponse> FinishPrepare(const v1::PrepareRequest& request,
                                              v1::PrepareResponse response);
  // Returns the input of InspectHost.
  StatusOr<InspectOptions> BeginInspect(const v1::InspectRequest& request);
  // Creates the generation and returns the input of MakeRankCommands. If it succeeds, call
  // FinishLaunch.
  StatusOr<HostContext> BeginLaunch(const v1::LaunchRequest& request);
  // Starts the ranks, or gives up the generation if there is an error instead of commands.
  StatusOr<v1::LaunchResponse> FinishLaunch(const v1::LaunchRequest& request,
                                            StatusOr<std::vector<RankCommand>> commands);
  StatusOr<v1::StopResponse> Stop(const v1::StopRequest& request);
  StatusOr<v1::RenewResponse> Renew(const v1::RenewRequest& request);
  StatusOr<v1::SignalResponse> Signal(const v1::SignalRequest& request);
  StatusOr<v1::ShareResponse> Share(const v1::ShareRequest& request);
  // Call when the controller's process on another host has ended. Without ranks this does nothing;
  // the lease then ends the daemon.
  void OnControllerGone();
  // Returns whether the controller has released the daemon.
  bool released() const { return released_; }
  // Returns the standard input of rank 0. kFailedPrecondition if the launch did not request it.
  StatusOr<std::shared_ptr<RankInput>> FindInput(const std::string& job_id,
                                                 std::uint32_t generation);
  // Returns the events of a generation, which must be the last one launched.
  StatusOr<std::shared_ptr<EventLog>> FindLog(const std::string& job_id, std::uint32_t generation);

 private:
  Supervisor(EventLoop* loop, SupervisorOptions options);
  Status WatchSignals();
  Status WatchController();
  Status CheckJob(const std::string& job_id) const;
  // Also checks that this daemon may still start something.
  Status CheckNewWork(const std::string& job_id) const;
  // Leases a different port than for the previous generation, unless the user has named one.
  v1::Finding LeasePort(std::uint32_t port, std::uint32_t generation);
  // Returns kNotFound unless this is the last generation launched.
  Status CheckGeneration(const std::string& job_id, std::uint32_t generation) const;
  std::optional<std::uint64_t> FindOpenFilesOfRanks() const;
  void OnSignal();
  void OnRanksEnded();
  void EndGenerationWhenAlone();
  // Stops the ranks, then the loop.
  void Finish(v1::StopCause cause);
  // Schedules the end of the ranks at the end of the lease, as it is now. Renewals make it longer
  // without the loop, so the lease is looked at again then.
  void SetEndOfLease();
  DaemonLease::Time end_of_lease();
  void Quit();
  void ScheduleHeartbeat();

  EventLoop* const loop_;
  SupervisorOptions options_;
  UniqueFd signals_;
  std::optional<PortLease> port_;
  bool port_was_named_ = false;
  std::uint32_t port_generation_ = 0;
  EvidenceCollector evidence_;
  std::unique_ptr<Generation> generation_;
  std::unique_ptr<Generation> launching_;  // between BeginLaunch and FinishLaunch
  DaemonDuty duty_;
  bool released_ = false;
  std::optional<EventLoop::TimerId> heartbeat_;
  std::optional<EventLoop::TimerId> lease_end_;
  std::mutex lease_mutex_;
  DaemonLease lease_;                // guarded by lease_mutex_
  std::optional<DeathTimer> death_;  // guarded by lease_mutex_; only with a lease
};

}  // namespace ds::daemon
