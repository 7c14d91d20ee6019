#pragma once

// PendingBlocks is the FIFO queue of blocks that an IoQueue's threads have not started.
//
// Thread-safe.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/offload/io_queue.h"

namespace ds::offload {

// A block and its remaining part.
struct PendingBlock {
  IoBlock block;
  std::shared_ptr<IoTransfer> transfer;

  // Processes the result of one system call: the number of bytes, or the negative errno. Returns
  // true when the block has ended. Otherwise the caller submits the remaining part.
  bool Advance(std::int64_t result);
};

class PendingBlocks {
 public:
  void Add(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer);
  // Takes at most `most` blocks. With `wait`, returns an empty list only after Close.
  std::vector<PendingBlock> Take(std::size_t most, bool wait);
  // Wakes all waiting threads. Do not call Add after this.
  void Close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PendingBlock> blocks_;
  bool closed_ = false;
};

}  // namespace ds::offload
