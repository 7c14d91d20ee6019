#pragma once

// RankMonitor: everything one running rank says and does, turned into events: its output, its
// messages over the rank link, its end.
//
// End of a rank: the process has ended (pidfd) and its output is at its end too. Something the rank
// started may hold the output open (a filter behind the rank, a helper it forgot). It goes on while
// it writes, for kMostSilences times as long as it may be silent. Once it has been silent for the
// job's grace (for kOutputGrace when the rank failed or is being stopped), the rank's process group
// is killed. Time in which nobody reads does not count. RankExited comes after all of its output.
//
// Threads: the loop's.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/logs/link_reader.h"
#include "daemon/logs/output_reader.h"
#include "daemon/ranks/rank_process.h"
#include "daemon/ranks/standstill.h"
#include "proto/dsrun.pb.h"

namespace ds::daemon {

inline constexpr std::chrono::milliseconds kOutputGrace{250};
inline constexpr int kMostSilences = 10;

// RankWatcher watches all ranks of a generation.
class RankWatcher {
 public:
  virtual ~RankWatcher() = default;
  // The process has ended, its output may not have. Returns what is known about it where all ranks
  // are: `stopping` and evidence.
  virtual v1::RankExited OnExit(const RankExit& exit, pid_t pid) = 0;
  // RankExited has been written and the process's number given back; nothing follows.
  virtual void OnEnded() = 0;
};

class RankMonitor {
 public:
  // `error_file` is that of the rank's command. `watcher` outlives the monitor.
  RankMonitor(RankContext context, RankProcess process, std::string error_file,
              std::chrono::nanoseconds grace, RankWatcher* watcher);
  ~RankMonitor();
  RankMonitor(const RankMonitor&) = delete;
  RankMonitor& operator=(const RankMonitor&) = delete;

  // Writes RankStarted and starts watching.
  Status Start();
  // Ends the rank and everything in its group without a trace, for a launch that failed.
  void Abort();

  std::uint32_t rank() const { return context_.rank; }
  pid_t pid() const { return process_.pid(); }
  bool ended() const { return ended_; }
  // Signals the whole process group. Nothing happens once the rank has ended.
  void Signal(int signal);
  // SIGKILL to the group; what still holds the output open gets no time to finish.
  void Kill();
  // It does not end though it was killed: it is heard no more, and OnEnded follows. The process is
  // not reaped.
  void GiveUp();
  // Signals the rank's own process only.
  void SignalProcess(int signal);
  // Reads output again after a full log made this rank wait.
  void Resume();

  // To be called now and then.
  v1::RankVital MakeVital();

 private:
  void OnExit();
  // Begins the longest silence anew.
  void AwaitOutput();
  void OnSilenceOver(std::uint64_t bytes_before);
  // Says who still writes, once, where the user may wonder what the job waits for.
  void TellOfSurvivors();
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
  std::optional<v1::RankExited> exit_;  // once the process has ended
  std::chrono::nanoseconds longest_silence_{0};
  std::chrono::steady_clock::time_point last_moment_;  // of what still writes
  bool told_of_survivors_ = false;
  std::optional<EventLoop::TimerId> output_deadline_;  // while only its output has not
  Standstill standstill_;
  bool killed_ = false;
  bool ended_ = false;
};

}  // namespace ds::daemon
