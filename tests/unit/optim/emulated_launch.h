#pragma once

// A launch of CUDA's flat updates on the host: every thread's share, one thread after the other, so
// that what a GPU would compute is tested without one.

#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

// By this many threads: few, so that each has several turns, and odd.
inline constexpr std::int64_t kEmulatedThreads = 37;

// A FlatUpdate over host memory.
void EmulatedUpdate(const FlatOp& op, const FlatViews& views);
// All of it by one thread, one element at a time.
void OneByOneUpdate(const FlatOp& op, const FlatViews& views);

}  // namespace ds::optim
