#pragma once

// LogFile is an append-only file of a run directory: the output of a rank, the events, the metrics.
// It can be limited in size: a file that would become larger moves to FILE.1, that one to FILE.2,
// and so on, as with logrotate and docker. The parts in order of age, oldest first, are what was
// appended; a line may continue in the next part.
//
// Not thread-safe. Only one process may append to a file.

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "cli/job/write_ledger.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

struct LogLimit {
  std::uint64_t max_bytes = 0;  // of each file; 0 = no limit
  int max_files = 3;            // at least 1, with the one that is written to; the oldest goes
};

class LogFile {
 public:
  // The first Append opens or creates the file.
  explicit LogFile(std::filesystem::path path, const LogLimit& limit = {},
                   WriteLedger* ledger = nullptr)
      : path_(std::move(path)), limit_(limit), ledger_(ledger) {}

  // The result of Append.
  struct Appended {
    Status status;
    // The file system or the user's quota is full. The same call may succeed later.
    bool is_full = false;
  };
  // Appends the text, and creates the file for "", too. After is_full the call may be repeated with
  // the same text, of which no byte is then in the file twice or missing.
  Appended Append(std::string_view text);

 private:
  // These return 0 or an errno.
  int Reopen();
  int Rotate();
  int WriteOrUndo(std::string_view text);

  std::filesystem::path path_;
  LogLimit limit_;
  WriteLedger* ledger_;  // null: none
  UniqueFd file_;        // invalid before the first call and after a failed rotation
  std::uint64_t size_ = 0;
  std::size_t appended_ = 0;  // of a text that is larger than a file may be
};

// Returns the name of the part of a log that is `age` rotations old; 0 is the log itself.
std::filesystem::path NameRotated(const std::filesystem::path& log, int age);

}  // namespace ds::cli
