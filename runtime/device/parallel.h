#pragma once

// ParallelFor: a loop on the threads of LibTorch's pool (OMP_NUM_THREADS, at::set_num_threads).
//
// It is at::parallel_for, which is a template that runs on one thread, without a word, wherever it
// is compiled without -fopenmp. So it is compiled once, with it, and called from everywhere.
//
// Calls body(first, end) for parts of [begin, end) that together are all of it, at once: one for
// each thread, but no more than it has parts of `grain`. Within such a body, or where there is one
// thread, it is one call on the caller's own. Where parts end depends on the number of threads:
// nothing of a result may. What a body throws comes out of here, of several the first.
//
// Threads: safe to call concurrently; each calling thread has a pool of its own.

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace ds::device {

void ParallelFor(std::int64_t begin, std::int64_t end, std::int64_t grain,
                 c10::function_ref<void(std::int64_t, std::int64_t)> body);

}  // namespace ds::device
