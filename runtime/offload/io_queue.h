#pragma once

// IoQueue: reads and writes of files that go on while their caller does something else.
//
// A transfer is a list of blocks. The queue works on several at once, in no particular order, goes
// on where the system has done only a part of one, and tells the transfer when the last one has
// ended. Two implementations: RingQueue (io_uring) and ThreadQueue; ChooseQueue picks.
//
// Threads: all methods are safe to call concurrently. Lifetimes: memory and file of a block are the
// queue's until its transfer has ended; a queue ends after its transfers.

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ds::offload {

struct IoBlock {
  bool writes = false;
  int fd = -1;
  std::int64_t offset = 0;
  std::span<std::byte> bytes;
  std::optional<int> registered = {};  // where all of them lie (IoQueue::Register)
};

struct IoFailure {
  IoBlock block;  // what of it was not transferred
  int error = 0;  // errno; 0: the file ends before the block does
};

class IoTransfer {
 public:
  explicit IoTransfer(std::size_t blocks) : left_(blocks) {}

  // Waits for all blocks. Returns the first failure.
  std::optional<IoFailure> Wait();
  bool done() const;

  // Called by the queue, once for each block.
  void EndBlock(std::optional<IoFailure> failure);

 private:
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t left_;
  std::optional<IoFailure> failure_;
};

// The `aio` section of a ds_config: how many blocks are under way, and how they are asked for.
struct IoOptions {
  std::int64_t block_bytes = std::int64_t{1} << 20;
  int queue_depth = 8;         // blocks that one thread has under way
  int threads = 1;             // intra_op_parallelism
  bool single_submit = false;  // each block is a system call of its own
  bool overlap_events = true;  // more are asked for before all of the earlier ones have ended
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;

  // Begins the blocks; their number is what the transfer was made with.
  virtual void Begin(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) = 0;

  // Tells the system of memory that blocks will lie in again and again: a number for their
  // `registered`, or none where it does not want to know. Unregister before the memory goes.
  virtual std::optional<int> Register(std::span<std::byte> memory) = 0;
  virtual void Unregister(int number) = 0;

  // "io_uring" or "threads".
  virtual std::string_view name() const = 0;
};

}  // namespace ds::offload
