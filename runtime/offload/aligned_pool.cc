#include "runtime/offload/aligned_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace ds::offload {

AlignedBuffer::~AlignedBuffer() {
  if (pool_ != nullptr) pool_->GiveBack(memory_);
}

AlignedPool::AlignedPool(IoQueue& queue, std::int64_t most_idle, BookBytes book, Pinning pinning)
    : queue_(queue), most_idle_(most_idle), book_(std::move(book)), pinning_(std::move(pinning)) {}

AlignedPool::~AlignedPool() {
  for (const Memory& memory : idle_) Unmap(memory);
}

AlignedBuffer AlignedPool::Take(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<std::size_t>((bytes + kPage - 1) / kPage * kPage);
  const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const Memory& memory) {
    return memory.bytes.size() == size;
  });
  if (found == idle_.rend()) return {this, Map(size)};
  const Memory memory = *found;
  idle_.erase(std::next(found).base());
  idle_bytes_ -= static_cast<std::int64_t>(size);
  return {this, memory};
}

// Maps pages directly, because the heap keeps freed memory (device/heap.h).
AlignedPool::Memory AlignedPool::Map(std::size_t size) {
  void* const start =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  static_cast<void>(::madvise(start, size, MADV_HUGEPAGE));  // fewer page faults, where supported
  const std::span<std::byte> bytes(static_cast<std::byte*>(start), size);
  book_(static_cast<std::int64_t>(size));
  return {.bytes = bytes, .registered = queue_.Register(bytes), .pinned = pinning_.pin(bytes)};
}

void AlignedPool::Unmap(const Memory& memory) {
  if (memory.pinned) pinning_.unpin(memory.bytes);
  if (memory.registered) queue_.Unregister(*memory.registered);
  ::munmap(memory.bytes.data(), memory.bytes.size());
  book_(-static_cast<std::int64_t>(memory.bytes.size()));
}

void AlignedPool::GiveBack(const Memory& memory) {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<std::int64_t>(memory.bytes.size());
  if (size > most_idle_) return Unmap(memory);
  idle_.push_back(memory);
  idle_bytes_ += size;
  while (idle_bytes_ > most_idle_) {
    idle_bytes_ -= static_cast<std::int64_t>(idle_.front().bytes.size());
    Unmap(idle_.front());
    idle_.pop_front();
  }
}

}  // namespace ds::offload
