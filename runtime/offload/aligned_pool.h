#pragma once

// AlignedPool hands out page-aligned memory for file transfers that bypass the page cache. A
// returned buffer stays in the pool, registered with the queue, for the next request of its size.
// The pool keeps at most `most_idle` bytes of idle buffers, the latest returned ones, because the
// transfers of one step have the sizes of the step before.
//
// Thread-safe. The queue must outlive the pool, and the pool its buffers.

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

// A buffer of the pool. The destructor returns it. Move-only.
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
  // Receives every change of the number of bytes that the pool holds, idle ones included.
  using BookBytes = std::function<void(std::int64_t change)>;

  // Functions that pin memory for a device's copies and unpin it. By default a pool pins nothing.
  // `pin` may fail; the copies are slower then.
  struct Pinning {
    std::function<bool(std::span<std::byte>)> pin = [](std::span<std::byte>) { return false; };
    std::function<void(std::span<std::byte>)> unpin = [](std::span<std::byte>) {};
  };

  AlignedPool(IoQueue& queue, std::int64_t most_idle, BookBytes book, Pinning pinning);
  ~AlignedPool();
  AlignedPool(const AlignedPool&) = delete;
  AlignedPool& operator=(const AlignedPool&) = delete;

  // Returns an uninitialized buffer of `bytes`, rounded up to full pages. Throws std::bad_alloc.
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
  std::mutex mutex_;        // guards the fields below
  std::list<Memory> idle_;  // in order of return
  std::int64_t idle_bytes_ = 0;
};

}  // namespace ds::offload
