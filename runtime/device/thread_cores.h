#pragma once

// BindThreadAndPool decides which cores threads may run on: the calling thread, and the pool that
// LibTorch's loops run on when it starts them (parallel.h).
//
// Threads: of each call the calling one. Errors: what the kernel refuses, with its reason.

#include <vector>

#include "runtime/base/status.h"

namespace ds::device {

// Binds the calling thread and its pool, which has `threads` threads then. Those that it starts
// from here on are bound, too.
Status BindThreadAndPool(const std::vector<int>& cores, int threads);

// Binds them for as long as it lives, to no more threads than there are cores: its destructor, on
// the same thread, gives them back the cores and the number of threads that they had.
class BoundPool {
 public:
  static StatusOr<BoundPool> Bind(const std::vector<int>& cores);
  BoundPool(BoundPool&& other) noexcept;
  BoundPool& operator=(BoundPool&&) = delete;
  ~BoundPool();

 private:
  BoundPool() = default;
  std::vector<int> cores_before_;  // none: somebody else has them
  int threads_before_ = 0;
};

}  // namespace ds::device
