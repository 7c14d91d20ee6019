#pragma once

// ThreadQueue: an IoQueue of threads that each wait for one block at a time. For machines where
// io_uring is forbidden (containers, hardened kernels).

#include <thread>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/offload/pending_blocks.h"

namespace ds::offload {

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
