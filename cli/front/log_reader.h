#pragma once

// LogReader prints files of a run folder that grow while their job runs: the logs of ranks, and
// events.jsonl. A line that has no end yet is printed when its end, or that of the job, is there.
//
// Not thread-safe.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

class LogReader {
 public:
  // Receives complete lines without their newlines.
  using OnLine = std::function<void(const std::string& line)>;

  LogReader(std::filesystem::path path, OnLine on_line)
      : path_(std::move(path)), on_line_(std::move(on_line)) {}

  // Prints the lines that are new since the last call. A file that does not exist has none.
  Status Read();
  // Prints the rest, also a line without an end.
  Status Finish();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  OnLine on_line_;
  std::uint64_t offset_ = 0;
  std::string unfinished_;
};

// Calls `read` now, and whenever the job of `run` may have written, until it has ended. Without an
// agent it calls `read` once.
Status FollowJob(const std::filesystem::path& run, const std::function<Status()>& read);

}  // namespace ds::cli
