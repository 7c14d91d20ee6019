#pragma once

// RunDirectory manages the files of one job, in runs/<job>/ or the folder of --run_dir.
//
//     job.json                          everything needed to repeat or resume the job but secrets;
//                                       its owner may read it, nobody else
//     config.resolved.json              the ds_config in force, and its "origins" (train)
//     events.jsonl                      what happened, one object a line (not the output)
//     metrics.jsonl                     one object per optimizer step; restarts append
//     logs/<generation>/rank-00000.out  every byte a rank wrote, and .err; .1, .2 and so on are
//                                       older parts of it (log_file.h)
//     job.lock                          who has the job open (run_lock.h)
//     checkpoints/                      (train)
//     verdict.json                      only after a failure
//
// Only one dsrun can have it open at a time. No error is taken for the absence of a file.
//
// Not thread-safe, except disk().

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/job/disk_wait.h"
#include "cli/job/job_observer.h"
#include "cli/job/log_file.h"
#include "cli/job/run_lock.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/files.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Converts an event to an object of events.jsonl. Returns nullopt for events that other files
// contain (output, metrics) or that repeat every second (heartbeats, beacons).
std::optional<nlohmann::ordered_json> ToJson(const HostEvent& event);

class RunDirectory {
 public:
  // Creates the folder; fails if it contains a job already. Every error names the folder and
  // --run_dir.
  static StatusOr<std::unique_ptr<RunDirectory>> Create(const std::filesystem::path& path);
  // Does the same for a folder that must not exist yet: kAlreadyExists if it does.
  static StatusOr<std::unique_ptr<RunDirectory>> CreateNew(const std::filesystem::path& path);
  // Opens a folder with a job; kNotFound if it has none.
  static StatusOr<std::unique_ptr<RunDirectory>> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  // For the two processes of a job that is handed over: the child that goes on with it names itself
  // as the holder of the lock, and the parent closes its own end. No other function of the parent's
  // object may be called then, except WriteVerdict when the child has ended.
  Status TakeOverLock() { return lock_->TakeOver(); }
  void LeaveLock() { lock_.reset(); }
  // Records all appends in the ledger from now on, which the caller keeps, and goes on after a
  // writer of the same job that was killed: its last append is undone if its event is not recorded.
  Status ContinueWriting(WriteLedger* ledger);
  // Returns the number after the last generation with logs.
  StatusOr<int> NextGeneration() const;
  // Limits the logs of the ranks that are opened from now on.
  void LimitLogs(const LogLimit& limit) { log_limit_ = limit; }
  // Append waits here while the disk is full. Without a listener the notices go to standard error.
  DiskWait& disk() { return disk_; }

  // `durability` is kDurable for a job that can be resumed after a crash of the machine.
  Status WriteJob(const nlohmann::ordered_json& job, Durability durability);
  StatusOr<nlohmann::ordered_json> ReadJob() const;
  Status WriteResolvedConfig(const nlohmann::ordered_json& config);
  // The contents of job.json and config.resolved.json, for restoring them.
  struct Settings {
    std::string job, resolved_config;
  };
  StatusOr<Settings> ReadSettings() const;
  Status PutBack(const Settings& settings);
  // Returns whether a step has been reported since the directory was opened.
  bool has_new_steps() const { return metrics_.has_value(); }
  Status WriteVerdict(const Verdict& verdict);
  // Removes the verdict of an earlier attempt, which does not apply to the next.
  Status RemoveVerdict();
  // Appends an event to its files. A rank's logs are created when it starts, so a rank without
  // output has empty ones. At most kMostOpenLogs log files are open, fewer if this process may open
  // few files. Waits while the disk is full.
  static constexpr std::size_t kMostOpenLogs = 256;
  Status Append(const HostEvent& event);
  // Returns the last lines of the rank's standard error, or of its standard output if that is
  // empty: at most 50, from the last 64 KiB. Empty if there are no logs; a line that says so if
  // they cannot be read.
  std::vector<std::string> ReadLastLines(int generation, int rank) const;

 private:
  using LogKey = std::pair<int, int>;  // rank, stream

  explicit RunDirectory(std::filesystem::path path);
  static StatusOr<std::unique_ptr<RunDirectory>> Begin(const std::filesystem::path& path);
  Status Lock();
  Status OpenEvents();
  void OpenMetrics();
  LogFile::Appended AppendOnce(const HostEvent& event);
  LogFile::Appended MakeRankLogs(int generation, int rank);
  LogFile::Appended AppendOutput(const HostEvent& event);
  LogFile::Appended AppendMetrics(const std::string& line);
  LogFile::Appended AppendToLog(int generation, const LogKey& key, const std::string& text);
  // Returns the log of a stream, opened or not, in logs_.
  LogFile* FindLog(const LogKey& key);
  // Returns the last bytes of a log, which may have been rotated.
  StatusOr<std::string> ReadLogEnd(const std::filesystem::path& log) const;

  const std::filesystem::path path_;
  std::optional<RunLock> lock_;  // set once open
  DiskWait disk_;
  std::optional<LogFile> events_;
  std::optional<LogFile> metrics_;
  LogLimit log_limit_;
  WriteLedger* ledger_ = nullptr;
  struct OpenedLog {
    LogFile file;
    std::uint64_t used;  // log_uses_ at its last use
  };

  int log_generation_ = -1;  // generation of logs_
  std::size_t most_open_logs_ = kMostOpenLogs;
  std::map<LogKey, OpenedLog> logs_;  // the most recently used ones, at most most_open_logs_
  std::uint64_t log_uses_ = 0;
};

}  // namespace ds::cli
