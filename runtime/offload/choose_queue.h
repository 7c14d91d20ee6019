#pragma once

// ChooseQueue: io_uring where this kernel lets us have it, else threads.

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/offload/io_queue.h"
#include "runtime/offload/pending_blocks.h"

namespace ds::offload {

enum class QueueChoice {
  kAuto,
  kThreads,
};

struct ChosenQueue {
  std::unique_ptr<IoQueue> queue;
  std::string why_not_ring = {};  // empty where it is one
};

// Files are read and written through `system` where threads do it.
ChosenQueue ChooseQueue(const IoOptions& options, QueueChoice choice, FileSystem& system);

// RingQueue: an IoQueue over io_uring. Each of its threads has a ring of its own and sleeps in the
// kernel while its blocks are under way.
//
// Memory that is registered is mapped into the kernel once, not for every block.

class RingQueue : public IoQueue {
 public:
  // Fails where the kernel has no io_uring or forbids it.
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
  std::mutex mutex_;               // guards what follows
  std::vector<int> free_numbers_;  // for memory to be registered
};

// ThreadQueue: an IoQueue of threads that each wait for one block at a time. For machines where
// io_uring is forbidden (containers, hardened kernels).

class ThreadQueue : public IoQueue {
 public:
  // Has as many threads as RingQueue has blocks under way, at most kMostThreads: a thread that
  // waits is one block under way.
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

}  // namespace ds::offload
