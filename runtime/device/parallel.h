#pragma once

// ParallelFor: a parallel loop on LibTorch's thread pool (OMP_NUM_THREADS, at::set_num_threads).
//
// It wraps at::parallel_for, a template that silently runs on one thread in files compiled without
// -fopenmp. This wrapper is compiled once, with -fopenmp.
//
// Calls body(first, end) for disjoint ranges that together cover [begin, end), in parallel: at most
// one range per thread, and at most as many as there are ranges of `grain`. Within such a body, or
// with one thread, it makes one call on the caller's thread. Range boundaries depend on the number
// of threads, so results must not depend on them. Rethrows the first exception of `body`.
//
// Thread-safe; each calling thread has its own pool.

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace ds::device {

void ParallelFor(std::int64_t begin, std::int64_t end, std::int64_t grain,
                 c10::function_ref<void(std::int64_t, std::int64_t)> body);

}  // namespace ds::device
