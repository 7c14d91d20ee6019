#pragma once

// Generation: one set of ranks, from their common start to the end of the last one.
//
// All start, or none stays. The first rank that fails (non-zero status or a signal) stops the
// others at once; so does Stop(). Stopping is one SIGTERM to every process group and to what has
// left them, a grace that all share, then SIGKILL. When nothing is being stopped, what ranks
// started in sessions of their own ends with the last rank. What has been killed and does not end
// (it waits for a disk or a device in the kernel, or has become another user's) is given up.
//
// Threads: the loop's; log() may be used from any.

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

// The private folder (0700) that holds one generation's files (0600), removed with everything in it
// when the object goes.
class GenerationFiles {
 public:
  // Makes `parent`/generation-N with the files of `request` in it. A file's name may not hold a
  // slash.
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
    std::filesystem::path folder;           // private; the job's files get a folder in it
    std::shared_ptr<EventLog> log;          // its on_room leads to Resume()
    EvidenceCollector* evidence = nullptr;  // that counts from now on; outlives the generation
    // Every rank has ended; End() is still to be called. Called again when the grace of a stop,
    // in which orphans may end, is over.
    std::function<void()> on_ranks_ended;
  };

  // Nothing runs yet. `loop` outlives the generation.
  static StatusOr<std::unique_ptr<Generation>> Create(EventLoop* loop,
                                                      const v1::LaunchRequest& request,
                                                      Options options);
  // Once. An error means that every rank has been killed and reaped; what they left behind, killed
  // as far as a control group held it, is to have ended before the generation goes (EndOrphans).
  Status Start(const v1::LaunchRequest& request);
  ~Generation() override;
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  std::uint32_t number() const { return number_; }
  std::vector<pid_t> pids() const;
  bool running() const { return running_ > 0; }
  bool HasRank(pid_t pid) const;
  // True while a stop is under way whose grace is not over.
  bool in_grace() const { return ladder_.in_grace(); }

  // Returns how many ranks were signalled. GenerationEnded names the cause of the first stop.
  int Stop(std::chrono::nanoseconds grace, v1::StopCause cause);
  // Passes a signal on to every rank's own process; returns to how many.
  int Forward(int signal);
  // For the ranks to find. kFailedPrecondition when there is no room for them.
  Status Share(const v1::ShareRequest& request);
  // The grace for stops that nobody asked for.
  std::chrono::nanoseconds grace() const { return grace_; }

  // All that runs was killed: what has not ended in a while is given up; on_ranks_ended follows.
  void AwaitEnd();
  bool has_given_up() const { return !unended_.empty(); }

  // Writes GenerationEnded and removes the job's files and control group. Requires: nothing runs
  // any more, or it was given up.
  void End();

  void AppendHeartbeat();
  // The log has room again.
  void Resume();
  const std::shared_ptr<EventLog>& log() const { return options_.log; }
  // The input of rank 0; null when it has none or is not on this host.
  const std::shared_ptr<RankInput>& input() const { return input_; }

 private:
  Generation(EventLoop* loop, std::uint32_t number, std::chrono::nanoseconds grace,
             Options options);
  StatusOr<std::vector<RankCommand>> MakeCommands(const v1::LaunchRequest& request);
  void MakeCgroup(const std::string& job_id);
  Status StartProcesses(const v1::LaunchRequest& request);
  Status StartMonitors();
  v1::RankExited OnExit(const RankExit& exit, pid_t pid) override;
  void OnEnded() override;
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
  bool killed_ = false;  // all of them were, here
  StopLadder ladder_;
  std::optional<EventLoop::TimerId> ladder_timer_;
  std::vector<std::string> unended_;     // given up
  std::unique_ptr<OwnedCgroup> cgroup_;  // null where there can be none
};

// The time that `field` of a request holds. kInvalidArgument when it is not a number of seconds
// from `shortest` to a day.
StatusOr<std::chrono::nanoseconds> ToDuration(std::string_view field, double seconds,
                                              double shortest = 0);

}  // namespace ds::daemon
