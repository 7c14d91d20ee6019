#pragma once

// PendingBlocks: the blocks that an IoQueue's threads have yet to begin, first come, first served.
//
// Threads: all methods are safe to call concurrently.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/offload/io_queue.h"

namespace ds::offload {

// A block and how far the system has come with it.
struct PendingBlock {
  IoBlock block;
  std::shared_ptr<IoTransfer> transfer;

  // Takes what one call of the system has returned: bytes, or the negative errno. Tells whether the
  // block has ended; if not, the rest of it has to be asked for.
  bool Advance(std::int64_t result);
};

class PendingBlocks {
 public:
  void Add(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer);
  // Takes at most `most` blocks. With `wait` it comes back with nothing only after Close.
  std::vector<PendingBlock> Take(std::size_t most, bool wait);
  // Nothing will be added.
  void Close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PendingBlock> blocks_;
  bool closed_ = false;
};

}  // namespace ds::offload
