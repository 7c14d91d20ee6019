#pragma once

// IoQueue reads and writes files in the background.
//
// A transfer is a list of blocks. The queue processes several blocks at once, in no particular
// order. It continues a block that the system transferred only in part, and completes the transfer
// after the last block. There are two implementations: RingQueue (io_uring) and ThreadQueue.
// ChooseQueue selects one.
//
// Thread-safe. Memory and file of a block must stay valid until its transfer has ended. Destroy a
// queue only after all its transfers have ended.

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
  std::optional<int> registered = {};  // registration of the memory (IoQueue::Register)
};

struct IoFailure {
  IoBlock block;  // the part that was not transferred
  int error = 0;  // errno, or 0 if the file ends before the block
};

class IoTransfer {
 public:
  explicit IoTransfer(std::size_t blocks) : left_(blocks) {}

  // Waits for all blocks. Returns the first failure, or nullopt.
  std::optional<IoFailure> Wait();
  bool done() const;

  // Called by the queue once per block.
  void EndBlock(std::optional<IoFailure> failure);

 private:
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t left_;
  std::optional<IoFailure> failure_;
};

// The `aio` section of a ds_config: the number of blocks in flight and the way to submit them.
struct IoOptions {
  std::int64_t block_bytes = std::int64_t{1} << 20;
  int queue_depth = 8;         // blocks in flight per thread
  int threads = 1;             // intra_op_parallelism
  bool single_submit = false;  // one system call per block
  bool overlap_events = true;  // submit more blocks before all earlier ones have ended
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;

  // Starts the blocks. Their number must equal the number passed to the transfer's constructor.
  virtual void Begin(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) = 0;

  // Registers memory that will hold many blocks. Returns the number for their `registered`, or
  // nullopt if the system does not register it. Call Unregister before freeing the memory.
  virtual std::optional<int> Register(std::span<std::byte> memory) = 0;
  virtual void Unregister(int number) = 0;

  // Returns "io_uring" or "threads".
  virtual std::string_view name() const = 0;
};

}  // namespace ds::offload
