#pragma once

// Supervisor: one job on one host. Answers what the service asks, owns the current generation, and
// decides when the daemon ends: when its controller is gone (the end of its pipe or of its
// connections, or no Renew within the lease) or it is told to (SIGTERM, SIGINT, SIGHUP, a releasing
// Renew), after its ranks have been stopped. While it is ending it starts nothing more, but can
// still be watched and stopped.
//
// When a lease is over the ranks' grace is bounded (proto/lease.h), and what this process does not
// do then, because it has been stopped or hangs, the kernel does (daemon/host/death_timer.h).
//
// Threads: the loop's, on which it must be created and used. SIGCHLD and the signals above must be
// blocked in every thread of the process.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/host/death_timer.h"
#include "daemon/job/daemon_duty.h"
#include "daemon/job/generation.h"
#include "daemon/logs/event_log.h"
#include "daemon/loop/event_loop.h"
#include "daemon/ranks/evidence_collector.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/port_lease.h"

namespace ds::daemon {

struct SupervisorOptions {
  std::string job_id;
  std::filesystem::path folder;  // private, exists
  std::filesystem::path dsrank;  // empty when this host has none
  std::vector<std::string> environment;
  UniqueFd controller;  // ends when the controller does; may be invalid (nobody to outlive)
  // The controller counts as gone without a Renew for so long; 0 = it never does.
  std::chrono::nanoseconds lease{0};
  std::chrono::nanoseconds heartbeat_interval = std::chrono::seconds(2);
  bool survives_hangup = false;  // SIGHUP means nothing: the session it was started in may end
};

// An error of Launch as the controller gets it. UNAVAILABLE and DEADLINE_EXCEEDED are gRPC's words
// for a daemon that did not answer; a file system whose server is not reached has the same ones,
// and must not be taken for a lost daemon.
Status MakeRefusal(const Status& error);

class Supervisor {
 public:
  // `loop` outlives the supervisor.
  static StatusOr<std::unique_ptr<Supervisor>> Create(EventLoop* loop, SupervisorOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request);
  StatusOr<v1::LaunchResponse> Launch(const v1::LaunchRequest& request);
  StatusOr<v1::StopResponse> Stop(const v1::StopRequest& request);
  StatusOr<v1::RenewResponse> Renew(const v1::RenewRequest& request);
  StatusOr<v1::SignalResponse> Signal(const v1::SignalRequest& request);
  StatusOr<v1::ShareResponse> Share(const v1::ShareRequest& request);
  // The process of the controller of another host has ended. Without ranks nothing is to be done
  // for it, and the lease ends the daemon.
  void OnControllerGone();
  // The standard input of rank 0. kFailedPrecondition when it was not asked for.
  StatusOr<std::shared_ptr<RankInput>> FindInput(const std::string& job_id,
                                                 std::uint32_t generation);
  // The events of a generation, the last one that was launched.
  StatusOr<std::shared_ptr<EventLog>> FindLog(const std::string& job_id, std::uint32_t generation);

 private:
  Supervisor(EventLoop* loop, SupervisorOptions options);
  Status WatchSignals();
  Status WatchController();
  Status CheckJob(const std::string& job_id) const;
  // ... and that this daemon still begins something.
  Status CheckNewWork(const std::string& job_id) const;
  // Another one than the generation before has, unless the user has named it.
  v1::Finding LeasePort(std::uint32_t port, std::uint32_t generation);
  // kNotFound when it is not the last one that was launched.
  Status CheckGeneration(const std::string& job_id, std::uint32_t generation) const;
  std::optional<std::string> FindEnvironmentValue(std::string_view name) const;
  void OnSignal();
  void OnRanksEnded();
  void EndGenerationWhenAlone();
  void EndRefusedWhenAlone();
  // Stops the ranks, then the loop.
  void Finish(v1::StopCause cause);
  // It ends, and its ranks with it, as long after its lease as their grace allows.
  void SetEndOfLease();
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
  std::unique_ptr<Generation> refused_;  // could not be started; orphans have not ended
  DaemonDuty duty_;
  std::optional<EventLoop::TimerId> heartbeat_;
  std::optional<EventLoop::TimerId> lease_end_;
  std::optional<DeathTimer> death_;  // of a daemon with a lease
};

}  // namespace ds::daemon
