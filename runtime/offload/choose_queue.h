#pragma once

// ChooseQueue returns an io_uring queue if this kernel allows one, otherwise a queue of threads.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
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

// PendingBlocks is the FIFO queue of blocks that an IoQueue's threads have not started.
//
// Thread-safe.
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

// RingQueue is an IoQueue over io_uring. Each of its threads has its own ring, and sleeps in the
// kernel while its blocks are in flight.
//
// Registered memory is mapped into the kernel once instead of for every block.
class RingQueue : public IoQueue {
 public:
  // Fails when the kernel has no io_uring or forbids it.
  static StatusOr<std::unique_ptr<RingQueue>> Create(const IoOptions& options);
  ~RingQueue() override;

  void Begin(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) override;
  std::optional<int> Register(std::span<std::byte> memory) override;
  void Unregister(int number) override;
  std::string_view name() const override { return "io_uring"; }

 private:
  class Worker;  // a thread and its ring

  RingQueue() = default;
  Status StartWorkers();
  bool Update(int number, std::span<std::byte> memory);

  PendingBlocks list_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex mutex_;               // guards the fields below
  std::vector<int> free_numbers_;  // unused registration numbers
};

// ThreadQueue is an IoQueue of threads that each wait for one block at a time. It serves machines
// where io_uring is forbidden (containers, hardened kernels).
class ThreadQueue : public IoQueue {
 public:
  // The queue has one thread per block that a RingQueue would have in flight, at most kMostThreads.
  // Each waiting thread is one block in flight.
  static constexpr int kMostThreads = 32;

  ThreadQueue(const IoOptions& options, FileSystem& system);
  ~ThreadQueue() override;

  void Begin(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) override;
  std::optional<int> Register(std::span<std::byte>) override { return std::nullopt; }
  void Unregister(int) override {}
  std::string_view name() const override { return "threads"; }

 private:
  void Run();

  FileSystem& system_;
  PendingBlocks list_;
  std::vector<std::thread> threads_;
};

enum class QueueChoice {
  kAuto,
  kThreads,
};

struct ChosenQueue {
  std::unique_ptr<IoQueue> queue;
  std::string why_not_ring = {};  // the reason against io_uring; empty if it is used
};

// Creates the queue. A queue of threads reads and writes files through `system`.
ChosenQueue ChooseQueue(const IoOptions& options, QueueChoice choice, FileSystem& system);

}  // namespace ds::offload
