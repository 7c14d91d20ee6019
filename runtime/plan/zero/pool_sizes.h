#pragma once

// PoolSizes: decides by size which buffers a pool of flat buffers keeps when they are returned,
// reuses and frees. Pure: BufferPool owns the memory.
//
// Returned buffers of a size that more than one unit uses, such as layers, are kept. One buffer of
// any other size is kept (fresh memory costs a page fault every 4 KiB), until another size needs
// memory: a large embedding's buffer is never idle next to a large head's.

#include <cstdint>
#include <map>
#include <vector>

namespace ds::zero {

class PoolSizes {
 public:
  // Registers one more tensor that will take buffers of this size.
  void AddUser(std::int64_t bytes) { ++sizes_[bytes].users; }

  struct Taking {
    bool is_idle = false;                  // takes an idle buffer of this size
    std::vector<std::int64_t> freed = {};  // else: frees the idle buffers of these sizes first
  };
  Taking Take(std::int64_t bytes);
  // Returns true if the buffer stays, idle.
  bool Return(std::int64_t bytes);
  // Frees all idle buffers.
  void FreeIdle();

  // The bytes of buffers in use or idle.
  std::int64_t held_bytes() const { return held_bytes_; }

  friend bool operator==(const PoolSizes&, const PoolSizes&) = default;

 private:
  struct Size {
    bool is_shared_by_units() const;
    friend bool operator==(const Size&, const Size&) = default;
    int users = 0;
    int idle = 0;
  };

  std::map<std::int64_t, Size> sizes_;
  std::int64_t held_bytes_ = 0;
};

}  // namespace ds::zero
