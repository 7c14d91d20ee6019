#pragma once

// PoolSizes: which buffers a pool of flat buffers keeps when they are given back, which it hands
// out again and which it frees, by their sizes alone. Pure: BufferPool has the memory.
//
// Buffers of a size that more than one unit uses, as layers have, are kept when given back. One
// buffer of any other size is kept (fresh memory costs a page fault every 4 KiB), until memory has
// to be found for another size: a large embedding's never lies idle beside a large head's.

#include <cstdint>
#include <map>
#include <vector>

namespace ds::zero {

class PoolSizes {
 public:
  // Says that one more tensor will take buffers of this size.
  void AddUser(std::int64_t bytes) { ++sizes_[bytes].users; }

  struct Taking {
    bool is_idle = false;                  // one of the idle buffers of this size is taken
    std::vector<std::int64_t> freed = {};  // else: sizes whose idle buffers go first
  };
  Taking Take(std::int64_t bytes);
  // Tells whether the buffer stays, idle.
  bool Return(std::int64_t bytes);
  // All idle buffers go.
  void FreeIdle();

  // In use or idle.
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
