#pragma once

// RankInput is the standard input of a rank, which the controller writes through a pipe.
//
// The bytes of a job's input are numbered from 0. Repeating bytes that were already written has no
// effect, so a controller without an answer retries with the same offset.
//
// Thread-safe. Write blocks until the rank reads; concurrent calls wait for it.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

class RankInput {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // `pipe` is the write end, non-blocking. SIGPIPE must be ignored in this process.
  explicit RankInput(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  struct Chunk {
    std::uint64_t offset;  // of its first byte
    std::string_view data;
    bool end;  // the input ends after `data`
  };
  // Writes the new bytes of the chunk until all are written or the deadline has passed. Returns the
  // number of its bytes that are done. Bytes that the rank will never read, because it has closed
  // its input or ended, count as done. Returns kOutOfRange for bytes after a gap.
  StatusOr<std::uint64_t> Write(const Chunk& chunk, Deadline deadline);

 private:
  std::string_view WriteSome(std::string_view data, Deadline deadline);

  std::mutex mutex_;
  UniqueFd pipe_;            // guarded by mutex_; closed when the rank will read no more
  std::uint64_t taken_ = 0;  // guarded by mutex_
};

}  // namespace ds::daemon
