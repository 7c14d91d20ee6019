#pragma once

// CountGrpcThreads returns the number of threads that gRPC 1.51 starts at its first use in a
// process: two executors, two timer threads, and the pool of its event engine, which grows with the
// processors. gRPC blocks forever on work for a thread that could not be started. So check the
// space for all threads before the first use (runtime/process/thread_quota.h).

#include <grpc/support/cpu.h>

#include <algorithm>

namespace dsrun::v1 {

inline int CountGrpcThreads() {
  return 4 + static_cast<int>(std::clamp(gpr_cpu_num_cores(), 2U, 32U));
}

// Returns the number of additional threads that gRPC starts at the first call with a callback.
inline int CountGrpcCallbackThreads() {
  return static_cast<int>(std::clamp(gpr_cpu_num_cores() / 2, 2U, 16U));
}

}  // namespace dsrun::v1
