#pragma once

// SimulatedHost: a host with its daemon, ranks, kernel and guardian. The daemon decides with the
// real DaemonDuty, DaemonLease and StopLadder; the rest is played: processes end when they are told
// to, the kernel kills the daemon at the time that it has set, and ranks with it.
//
// Threads: one.

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/job/daemon_duty.h"
#include "daemon/job/daemon_lease.h"
#include "daemon/job/stop_ladder.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "tests/sim/event_clock.h"

namespace ds::sim {

namespace v1 = ::dsrun::v1;

// Mistakes are what a broken actor would do; each has been made, or could be.
struct Mistakes {
  bool lease_from_arrival = false;   // a renewal counts from when it comes
  bool no_death_timer = false;       // nobody ends a daemon that has been stopped
  bool lost_stops_count = false;     // a Stop without an answer counts as done
  bool pauses_go_unnoticed = false;  // dsrun does not know that it has not run
  bool first_by_arrival = false;     // the first failure is the one that is reported first
};

// RankLife is how one rank of one generation goes about it.
struct RankLife {
  Time works_for{};
  int exit_code = 0;
  std::optional<Time> ends_after_sigterm;  // none: it does not
  bool survives_sigkill = false;           // it waits for a disk in the kernel
};

struct SimulatedRank {
  int number = 0;
  int generation = 0;
  RankLife life;
  bool alive = true;
  bool left_children = false;  // which live on
  bool ended_by_itself = false;
  int exit_code = 0;
  int signal = 0;
};

class SimulatedHost {
 public:
  struct Options {
    Time lease{};
    Time boot_offset{};                        // of its clock from simulated time
    std::function<std::int64_t()> wall_clock;  // somebody sets it again and again
    Time clean_up_after{};                     // the guardian's, within kLeaseCleanUp
    Mistakes mistakes;
    std::function<RankLife(int rank, int generation)> live;
    std::function<void(int generation)> on_launch;  // ranks of it begin
    std::function<void()> on_change;                // there are events, or the daemon has ended
  };
  // The daemon runs. `clock` outlives the host.
  SimulatedHost(EventClock* clock, Options options);

  // The daemon's loop takes `work` as soon as it runs; one that has ended takes none.
  void Deliver(std::function<void()> work);
  bool has_daemon() const { return alive_; }
  Time boot_time() const { return clock_->now() + options_.boot_offset; }

  // The daemon's calls, on its loop.
  Status Launch(const v1::LaunchRequest& request);
  Status Stop(const v1::StopRequest& request);
  Status Renew(std::uint64_t answered, bool release);
  const std::vector<v1::Event>& log(int generation) { return logs_[generation]; }

  // Faults.
  void KillDaemon();
  void PauseDaemon() { paused_ = true; }
  void ResumeDaemon();
  void KillRank();  // one, if there is any
  void FailRank();  // with a status of its own

  const std::deque<SimulatedRank>& ranks() const { return ranks_; }
  bool lives(const SimulatedRank& rank) const { return rank.alive || rank.left_children; }

 private:
  void SetTimers();
  void OnTime();
  void Append(int generation, v1::Event event);
  void Terminate();
  void KillRanks();
  void GiveUp();
  void End(SimulatedRank* rank, int exit_code, int signal);
  void OnRankEnded(const SimulatedRank& rank);
  void OnAllEnded();
  void EndGeneration();
  void Finish(v1::StopCause cause);
  void Quit();

  EventClock* const clock_;
  const Options options_;
  daemon::DaemonDuty duty_;
  daemon::DaemonLease lease_;
  daemon::StopLadder ladder_;
  bool alive_ = true;
  bool paused_ = false;
  bool killed_ = false;  // the ranks were, by the daemon
  bool lease_over_ = false;
  int generation_ = -1;
  int running_ = 0;
  std::vector<std::string> unended_;
  std::deque<std::function<void()>> waiting_;  // of a daemon that is paused
  std::deque<SimulatedRank> ranks_;            // of all generations
  std::map<int, std::vector<v1::Event>> logs_;
};

}  // namespace ds::sim
