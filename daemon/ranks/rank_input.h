#pragma once

// RankInput: the standard input of a rank, fed by the controller through a pipe.
//
// The bytes of a job's input are numbered from 0. A call that repeats bytes already written changes
// nothing, so a controller that got no answer asks again with the same offset.
//
// Threads: safe from any. A Write waits for the rank to read; others wait for it.

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

  // `pipe` is the writing end, non-blocking. SIGPIPE must be ignored in this process.
  explicit RankInput(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  struct Chunk {
    std::uint64_t offset;  // of its first byte
    std::string_view data;
    bool end;  // nothing follows
  };
  // Writes what is new of the chunk until all is written or the deadline has passed; returns how
  // many of its bytes are dealt with. What a rank will never read (it has closed its input or
  // ended) counts as dealt with. kOutOfRange for bytes behind a gap.
  StatusOr<std::uint64_t> Write(const Chunk& chunk, Deadline deadline);

 private:
  std::string_view WriteSome(std::string_view data, Deadline deadline);

  std::mutex mutex_;
  UniqueFd pipe_;            // guarded by mutex_; closed once nothing more will be read
  std::uint64_t taken_ = 0;  // guarded by mutex_
};

}  // namespace ds::daemon
