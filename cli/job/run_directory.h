#pragma once

// RunDirectory: the files of one job, runs/<job>/ unless --run_dir says otherwise.
//
//     job.json                          everything needed to repeat or resume the job but secrets;
//                                       its owner may read it, nobody else
//     config.resolved.json              the ds_config in force, and its "origins" (train)
//     events.jsonl                      what happened, one object a line (not the output)
//     metrics.jsonl                     one object per optimizer step; restarts append
//     logs/<generation>/rank-00000.out  every byte a rank wrote, and .err
//     logs/<generation>/index.jsonl     when it did (log_index.h)
//     checkpoints/                      (train)
//     verdict.json                      only after a failure
//
// One dsrun at a time has it open.
//
// Threads: one at a time.

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

#include "cli/job/job_observer.h"
#include "cli/job/log_index.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/files.h"
#include "runtime/base/status.h"

namespace ds::cli {

// An event as an object of events.jsonl. None for those that other files keep (output, metrics) or
// that repeat every second (heartbeats, beacons).
std::optional<nlohmann::ordered_json> ToJson(const HostEvent& event);

class RunDirectory {
 public:
  // Makes the folder; refuses one that holds a job already. Every error names the folder and
  // --run_dir.
  static StatusOr<std::unique_ptr<RunDirectory>> Create(const std::filesystem::path& path);
  // Opens one that holds a job: kNotFound when it does not.
  static StatusOr<std::unique_ptr<RunDirectory>> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  // Returns one more than any generation that has logs here.
  int NextGeneration() const;

  // kDurable for a job that can be resumed after the machine has gone down.
  Status WriteJob(const nlohmann::ordered_json& job, Durability durability);
  StatusOr<nlohmann::ordered_json> ReadJob() const;
  Status WriteResolvedConfig(const nlohmann::ordered_json& config);
  // job.json and config.resolved.json as they lie there, to be put back.
  struct Settings {
    std::string job, resolved_config;
  };
  StatusOr<Settings> ReadSettings() const;
  Status PutBack(const Settings& settings);
  // Tells whether a step has been reported since the directory was opened.
  bool has_new_steps() const { return metrics_.has_value(); }
  Status WriteVerdict(const Verdict& verdict);
  // A verdict of an earlier try says nothing about the next.
  Status RemoveVerdict();
  // The logs of a rank are made when it starts: one that wrote nothing has empty ones. However many
  // there are, kMostOpenLogs of them are open, and fewer where this process may open few files.
  static constexpr std::size_t kMostOpenLogs = 256;
  Status Append(const HostEvent& event);
  // Returns the last lines that the rank has written to standard error, or to standard output where
  // it wrote none there: 50 at most, of the last 64 KiB. None where there are no logs of it.
  std::vector<std::string> ReadLastLines(int generation, int rank) const;
  // Writes what Append has put off: call it now and then, and at the end of the job.
  Status Flush();

 private:
  using LogKey = std::pair<int, int>;  // rank, stream

  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  Status Lock();
  Status OpenEvents();
  Status MakeRankLogs(int generation, int rank);
  Status AppendOutput(const HostEvent& event);
  Status AppendMetrics(const std::string& line);
  StatusOr<AppendFile*> OpenLog(int generation, const LogKey& key);

  const std::filesystem::path path_;
  UniqueFd lock_;  // the folder itself, locked while it is open
  std::optional<AppendFile> events_;
  std::optional<AppendFile> metrics_;
  struct OpenedLog {
    AppendFile file;
    std::uint64_t used;  // log_uses_ when it was
  };

  int log_generation_ = -1;  // whose files logs_ holds
  std::size_t most_open_logs_ = kMostOpenLogs;
  std::map<LogKey, OpenedLog> logs_;  // those used last, most_open_logs_ at most
  std::uint64_t log_uses_ = 0;
  std::optional<LogIndex> index_;  // of these logs
};

}  // namespace ds::cli
