#pragma once

// Generation is one set of ranks, from their common start to the end of the last one.
//
// Either all ranks start, or none remains. The first failing rank (it cannot start, or ends with a
// non-zero status or a signal) stops the others at once, as does Stop(). A rank that takes longer
// to start than the launch permits has failed. A stop sends one SIGTERM to every process group and
// to strays, waits for a shared grace, then sends SIGKILL. Without a stop, processes in sessions of
// their own are ended after the last rank. Killed processes that do not end are given up. They wait
// for a disk or a device in the kernel, or belong to another user now.
//
// Use it on the loop's thread only; log() is thread-safe.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/job/stop_ladder.h"
#include "daemon/logs/event_log.h"
#include "daemon/logs/shared_values.h"
#include "daemon/loop/event_loop.h"
#include "daemon/ranks/evidence_collector.h"
#include "daemon/ranks/rank_command.h"
#include "daemon/ranks/rank_input.h"
#include "daemon/ranks/rank_monitor.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"
#include "runtime/process/owned_cgroup.h"

namespace ds::daemon {

// Converts an error of a launch for the controller. gRPC uses UNAVAILABLE and DEADLINE_EXCEEDED for
// a daemon that did not answer. An unreachable file server has the same codes and must not be
// mistaken for a lost daemon.
Status MakeRefusal(const Status& error);

// The private folder (0700) with one generation's files (0600). The destructor removes it and its
// contents.
class GenerationFiles {
 public:
  // Creates `parent`/generation-N with the files of `request`. File names must not contain a slash.
  static StatusOr<GenerationFiles> Create(const std::filesystem::path& parent,
                                          const v1::LaunchRequest& request);

  GenerationFiles(GenerationFiles&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  GenerationFiles& operator=(GenerationFiles&&) = delete;
  ~GenerationFiles();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit GenerationFiles(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

class Generation final : public RankWatcher {
 public:
  struct Options {
    HostContext host;
    std::filesystem::path folder;           // private; parent of the job's folder
    std::shared_ptr<EventLog> log;          // its on_space must lead to Resume()
    EvidenceCollector* evidence = nullptr;  // counts from now on; must outlive the generation
    // Called when every rank has ended; End() is still due. Called again when the grace of a stop
    // is over, during which orphans may end.
    std::function<void()> on_ranks_ended;
  };

  // Creates a generation and its files without starting it. `loop` must outlive the generation.
  static StatusOr<std::unique_ptr<Generation>> Create(EventLoop* loop,
                                                      const v1::LaunchRequest& request,
                                                      Options options);
  // The settings of this host for the ranks' commands (MakeRankCommands).
  const HostContext& host() const { return options_.host; }
  // Creates the processes, which go on to execute their programs. Call at most once. After an error
  // there is no process. Later errors are events (StartFailed).
  Status Start(const std::string& job_id, std::vector<RankCommand> commands);
  ~Generation() override;
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  std::uint32_t number() const { return number_; }
  std::vector<pid_t> pids() const;
  bool running() const { return running_ > 0; }
  bool HasRank(pid_t pid) const;
  // True during a stop until its grace is over.
  bool in_grace() const { return ladder_.in_grace(); }

  // Returns the number of ranks signalled. GenerationEnded names the cause of the first stop.
  int Stop(std::chrono::nanoseconds grace, v1::StopCause cause);
  // Forwards a signal to every rank's own process. Returns the number of ranks signalled.
  int Forward(int signal);
  // Publishes values for the ranks. Returns kFailedPrecondition if they exceed the space for
  // values.
  Status Share(const v1::ShareRequest& request);
  // The grace for stops that the daemon decides itself.
  std::chrono::nanoseconds grace() const { return grace_; }

  // Call when all processes have been killed. Those still running after a while are given up, then
  // on_ranks_ended is called.
  void AwaitEnd();
  bool has_given_up() const { return !unended_.empty(); }

  // Writes GenerationEnded and removes the job's files and control group. Requires that no process
  // runs any more, or that the remaining ones were given up.
  void End();

  void AppendHeartbeat();
  // Call when the log has space again.
  void Resume();
  const std::shared_ptr<EventLog>& log() const { return options_.log; }
  // Returns the input of rank 0; null if it has none or runs on another host.
  const std::shared_ptr<RankInput>& input() const { return input_; }

 private:
  Generation(EventLoop* loop, std::uint32_t number, std::chrono::nanoseconds grace,
             Options options);
  void MakeCgroup(const std::string& job_id);
  Status MakeFiles(const v1::LaunchRequest& request);
  // Returns an error if there is no process. If there are some, its failures are events.
  Status StartProcesses(std::vector<RankCommand> commands);
  Status StartProcess(RankCommand command, int group);
  v1::RankExited OnExit(const RankExit& exit, pid_t pid) override;
  void OnEnded() override;
  void OnStartFailed(std::uint32_t rank, const Status& why) override;
  void OnOutsideGroup(std::uint32_t rank, const Status& why) override;
  void LimitStart();
  void OnStartLimit();
  int SignalAll(int signal);
  void KillAll();
  void SetLadderTimer();
  void OnLadderTime();
  void GiveUp();

  EventLoop* const loop_;
  const std::uint32_t number_;
  const std::chrono::nanoseconds grace_;
  Options options_;
  std::optional<GenerationFiles> files_;
  std::vector<char> buffer_;
  SharedValues values_;
  std::vector<std::unique_ptr<RankMonitor>> ranks_;
  std::shared_ptr<RankInput> input_;
  std::size_t running_ = 0;
  const EventLoop::TimePoint created_ = EventLoop::TimePoint::clock::now();
  std::chrono::nanoseconds start_limit_{0};  // for all ranks to start; 0 = none
  std::optional<EventLoop::TimerId> start_timer_;
  bool killed_ = false;  // KillAll has killed all ranks
  StopLadder ladder_;
  std::optional<EventLoop::TimerId> ladder_timer_;
  std::vector<std::string> unended_;     // processes given up
  std::unique_ptr<OwnedCgroup> cgroup_;  // null if none could be created
  bool holds_all_ = true;                // cgroup_ holds every rank
};

// Converts `field` of a request to a duration. Returns kInvalidArgument unless it is a number of
// seconds from `shortest` to a day.
StatusOr<std::chrono::nanoseconds> ToDuration(std::string_view field, double seconds,
                                              double shortest = 0);

}  // namespace ds::daemon
