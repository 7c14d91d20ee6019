#pragma once

// RankMonitor converts everything a rank does into events: its start, its output, its messages over
// the rank link, its end. RankStarted is its first event, once it executes its program.
//
// A rank has ended when its process has ended (pidfd) and its output streams are closed. A process
// that the rank started may keep the output open: a filter after the rank, or a forgotten helper.
// It may continue while it writes, for at most kMostSilences times the longest permitted silence.
// That silence is the job's grace, or kOutputGrace if the rank failed or is being stopped. After
// that, the rank's process group is killed. Time in which the daemon does not read does not count.
// RankExited follows all output of the rank.
//
// Use it on the loop's thread only.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "daemon/logs/link_reader.h"
#include "daemon/logs/output_reader.h"
#include "daemon/ranks/rank_process.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/process_stat.h"

namespace ds::daemon {

// Standstill detects a rank that a signal has stopped permanently. A rank that is stopped and
// continued repeatedly (by cpulimit, for example) may be stopped at every check and is not
// reported.
//
// Pure. Not thread-safe.
class Standstill {
 public:
  // Returns true if the process is stopped and has used no CPU time since the previous call.
  bool Look(const std::optional<ProcessStat>& stat) {
    if (!stat.has_value()) return false;
    const std::optional<std::uint64_t> before = std::exchange(ticks_, stat->processor_ticks);
    return stat->state == 'T' && before == ticks_;
  }

 private:
  std::optional<std::uint64_t> ticks_;  // at the previous call
};

inline constexpr std::chrono::milliseconds kOutputGrace{250};
inline constexpr int kMostSilences = 10;

// RankWatcher watches all ranks of a generation.
class RankWatcher {
 public:
  virtual ~RankWatcher() = default;
  // Called when the process has ended; its output may still be open. Returns the fields that only
  // the watcher of all ranks knows: `stopping` and evidence.
  virtual v1::RankExited OnExit(const RankExit& exit, pid_t pid) = 0;
  // Called after RankExited has been written and the process reaped, or after GiveUp. It is the
  // last call.
  virtual void OnEnded() = 0;
  // Called when the process executes its program, but has not entered its control group.
  virtual void OnOutsideGroup(std::uint32_t rank, const Status& why) = 0;
  // Called when the process has not executed its program. It has been reaped; OnEnded follows.
  virtual void OnStartFailed(std::uint32_t rank, const Status& why) = 0;
};

class RankMonitor {
 public:
  // `error_file` is the one in the rank's command. `watcher` must outlive the monitor.
  RankMonitor(RankContext context, RankProcess process, std::string error_file,
              std::chrono::nanoseconds grace, RankWatcher* watcher);
  ~RankMonitor();
  RankMonitor(const RankMonitor&) = delete;
  RankMonitor& operator=(const RankMonitor&) = delete;

  // Starts watching.
  Status Start();

  std::uint32_t rank() const { return context_.rank; }
  pid_t pid() const { return process_.pid(); }
  bool ended() const { return ended_; }
  // True until the rank executes its program or has ended.
  bool starting() const { return process_.starting() && !ended_; }
  std::string DescribeStart() const { return process_.DescribeStart(); }
  // Signals the full process group. Does nothing after the rank has ended.
  void Signal(int signal);
  // Sends SIGKILL to the group. Processes that keep the output open get no time to finish.
  void Kill();
  // Call for a killed rank that does not end. Stops reading from it and calls OnEnded. The process
  // is not reaped.
  void GiveUp();
  // Signals the rank's own process only. Returns false if it does not run its program: the signal
  // is for that.
  bool SignalProcess(int signal);
  // Reads output again after the log was full.
  void Resume();

  // Call it periodically.
  v1::RankVital MakeVital();

 private:
  void OnStarted();
  Status WatchProgram();
  void OnExit();
  // Restarts the timer of the longest silence.
  void AwaitOutput();
  void OnSilenceOver(std::uint64_t bytes_before);
  // Reports once which processes still write, if the user may wonder why the job does not end.
  void ReportSurvivors();
  std::uint64_t bytes_read() const { return stdout_.bytes_read() + stderr_.bytes_read(); }
  void MaybeFinish();
  void Finish();
  void StopListening();

  const RankContext context_;
  RankProcess process_;
  const std::string error_file_;
  RankWatcher* const watcher_;
  OutputReader stdout_;
  OutputReader stderr_;
  LinkReader link_;
  const std::chrono::nanoseconds grace_;
  std::optional<v1::RankExited> exit_;  // set once the process has ended
  std::chrono::nanoseconds longest_silence_{0};
  std::chrono::steady_clock::time_point last_moment_;  // the limit for processes that still write
  bool reported_survivors_ = false;
  std::optional<EventLoop::TimerId> output_deadline_;  // set while only the output is open
  Standstill standstill_;
  bool killed_ = false;
  bool ended_ = false;
};

}  // namespace ds::daemon
