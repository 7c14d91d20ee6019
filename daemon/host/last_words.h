#pragma once

// LastWords keeps the latest messages of the daemon of another host in memory, for its guardian,
// which leaves them in a file when the daemon has ended without being released: nobody else reads
// them there. During the job nothing waits for the file system of that file.
//
// Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::daemon {

class LastWords {
 public:
  static constexpr std::size_t kMostBytes = 64 * 1024;

  // Allocates all its memory.
  LastWords() { text_.reserve(2 * kMostBytes); }

  // Adds bytes of the stream of messages that arrived at `unix_seconds`. Each line gets the time.
  void Add(std::string_view bytes, std::int64_t unix_seconds);
  // Returns the latest whole lines, at most kMostBytes.
  std::string_view text() const;

  // Writes text() and the line `end` to a new file at `path`, which only this user may read, and
  // makes its folder.
  Status Leave(const std::string& path, std::string_view end, std::int64_t unix_seconds) const;

 private:
  void Append(std::string_view bytes);

  std::string text_;
  bool in_line_ = false;
};

// Removes the file of this job.
void RemoveLastWords(const std::string& path);

// Returns the file for the daemon of `job_id` on this host; "" if the user has no home. Homes may
// be shared between hosts, so its name has the host's.
std::string FindLastWordsPath(const std::string& job_id);

}  // namespace ds::daemon
