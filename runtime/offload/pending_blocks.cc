#include "runtime/offload/pending_blocks.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ds::offload {

bool PendingBlock::Advance(std::int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result <= 0) {
    // Retrying would not help a write that transferred nothing and reported no error.
    const int error = result == 0 && block.writes ? EIO : static_cast<int>(-result);
    transfer->EndBlock(IoFailure{.block = block, .error = error});
    return true;
  }
  block.bytes = block.bytes.subspan(static_cast<std::size_t>(result));
  block.offset += result;
  if (!block.bytes.empty()) return false;
  transfer->EndBlock({});
  return true;
}

void PendingBlocks::Add(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) {
  const std::lock_guard lock(mutex_);
  for (IoBlock& block : blocks) blocks_.push_back({std::move(block), transfer});
  changed_.notify_all();
}

std::vector<PendingBlock> PendingBlocks::Take(std::size_t most, bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait(lock, [&] { return closed_ || !blocks_.empty(); });
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, blocks_.size()));
  const auto end = blocks_.begin() + count;
  std::vector<PendingBlock> taken(std::make_move_iterator(blocks_.begin()),
                                  std::make_move_iterator(end));
  blocks_.erase(blocks_.begin(), end);
  return taken;
}

void PendingBlocks::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace ds::offload
