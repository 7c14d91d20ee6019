#pragma once

// RingQueue: an IoQueue over io_uring. Each of its threads has a ring of its own and sleeps in the
// kernel while its blocks are under way.
//
// Memory that is registered is mapped into the kernel once, not for every block.

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/offload/pending_blocks.h"

namespace ds::offload {

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

}  // namespace ds::offload
