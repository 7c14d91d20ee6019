#pragma once

// CountGrpcThreads says how many threads gRPC 1.51 starts for itself when a process first uses it:
// two executors, two keepers of timers, and the pool of its event engine, which grows with the
// processors. It waits for ever for work that it has left to one of them, so that who uses gRPC
// first makes sure that there is room for all (runtime/process/thread_room.h).

#include <grpc/support/cpu.h>

#include <algorithm>

namespace dsrun::v1 {

inline int CountGrpcThreads() {
  return 4 + static_cast<int>(std::clamp(gpr_cpu_num_cores(), 2U, 32U));
}

// And so many when something is first called whose answer a callback gets.
inline int CountGrpcCallbackThreads() {
  return static_cast<int>(std::clamp(gpr_cpu_num_cores() / 2, 2U, 16U));
}

}  // namespace dsrun::v1
