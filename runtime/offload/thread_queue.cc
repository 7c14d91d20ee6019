#include "runtime/offload/choose_queue.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "runtime/base/check.h"

namespace ds::offload {

ThreadQueue::ThreadQueue(const IoOptions& options, FileSystem& system) : system_(system) {
  const std::int64_t under_way = std::int64_t{options.threads} * options.queue_depth;
  const auto count = std::min<std::int64_t>(under_way, kMostThreads);
  DS_CHECK(count > 0);
  try {
    for (std::int64_t i = 0; i < count; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error&) {
    // A container may limit the number of threads. A single thread can process all blocks, only
    // with fewer in flight.
    if (threads_.empty()) throw;
  }
}

ThreadQueue::~ThreadQueue() {
  list_.Close();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadQueue::Begin(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) {
  list_.Add(std::move(blocks), transfer);
}

void ThreadQueue::Run() {
  while (true) {
    std::vector<PendingBlock> taken = list_.Take(1, /*wait=*/true);
    if (taken.empty()) return;
    PendingBlock& pending = taken[0];
    const IoBlock& block = pending.block;
    while (!pending.Advance(block.writes ? system_.Write(block.fd, block.bytes, block.offset)
                                         : system_.Read(block.fd, block.bytes, block.offset))) {
    }
  }
}

}  // namespace ds::offload
