#pragma once

// BindThreadAndPool binds threads to cores: the calling thread, and the pool of LibTorch's loops
// that this thread starts (parallel.h).
//
// Each call affects the calling thread. Errors: the kernel's error, with its reason.

#include <vector>

#include "runtime/base/status.h"

namespace ds::device {

// Binds the calling thread and its pool, and sets the pool's size to `threads`. Threads that they
// start later are bound too.
Status BindThreadAndPool(const std::vector<int>& cores, int threads);

// BoundPool: binds the calling thread and its pool during its lifetime, to at most as many threads
// as cores. Its destructor restores the previous cores and number of threads; destroy it on the
// same thread.
class BoundPool {
 public:
  static StatusOr<BoundPool> Bind(const std::vector<int>& cores);
  BoundPool(BoundPool&& other) noexcept;
  BoundPool& operator=(BoundPool&&) = delete;
  ~BoundPool();

 private:
  BoundPool() = default;
  std::vector<int> cores_before_;  // empty: moved from
  int threads_before_ = 0;
};

}  // namespace ds::device
