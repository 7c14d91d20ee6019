#pragma once

// AlignedPool: memory in whole pages that files are read into and written from, past the page
// cache. What is given back is kept for the next one of its size, registered with the queue. Of
// what is idle no more than `most_idle` bytes are kept: those that have come back last, as a step's
// next transfers are of the sizes of the ones before.
//
// Threads: all methods are safe to call concurrently. Lifetimes: the queue outlives the pool, the
// pool its buffers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "runtime/offload/io_queue.h"

namespace ds::offload {

class AlignedPool;

// Goes back to its pool with its destructor. Move-only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), memory_(std::exchange(other.memory_, {})) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~AlignedBuffer();

  std::span<std::byte> bytes() const { return memory_.bytes; }
  std::optional<int> registered() const { return memory_.registered; }

 private:
  friend class AlignedPool;
  struct Memory {
    std::span<std::byte> bytes = {};
    std::optional<int> registered = {};
    bool pinned = false;
  };
  AlignedBuffer(AlignedPool* pool, const Memory& memory) : pool_(pool), memory_(memory) {}

  AlignedPool* pool_ = nullptr;
  Memory memory_;
};

class AlignedPool {
 public:
  static constexpr std::int64_t kPage = 4096;
  // Is told of every change of the bytes that the pool holds, idle ones too.
  using BookBytes = std::function<void(std::int64_t change)>;

  // Lock memory for a device's copies, and let it go; a pool without them does neither. `pin` may
  // fail: the copies are slower then.
  struct Pinning {
    std::function<bool(std::span<std::byte>)> pin = [](std::span<std::byte>) { return false; };
    std::function<void(std::span<std::byte>)> unpin = [](std::span<std::byte>) {};
  };

  AlignedPool(IoQueue& queue, std::int64_t most_idle, BookBytes book, Pinning pinning);
  ~AlignedPool();
  AlignedPool(const AlignedPool&) = delete;
  AlignedPool& operator=(const AlignedPool&) = delete;

  // Returns at least `bytes`, in whole pages, of undefined values; throws std::bad_alloc.
  AlignedBuffer Take(std::int64_t bytes);

 private:
  friend class AlignedBuffer;
  using Memory = AlignedBuffer::Memory;

  void GiveBack(const Memory& memory);
  Memory Map(std::size_t size);
  void Unmap(const Memory& memory);

  IoQueue& queue_;
  const std::int64_t most_idle_;
  const BookBytes book_;
  const Pinning pinning_;
  std::mutex mutex_;        // guards what follows
  std::list<Memory> idle_;  // in the order in which it came back
  std::int64_t idle_bytes_ = 0;
};

}  // namespace ds::offload
