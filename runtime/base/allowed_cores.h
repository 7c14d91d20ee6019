#pragma once

// ListCoresOfThread returns the logical cores on which the calling thread may run
// (sched_getaffinity).
//
// Fails when the kernel refuses the call; the message holds its reason. Thread-safe.

#include <vector>

#include "runtime/base/status.h"

namespace ds {

// Returns the core numbers in ascending order; never empty.
StatusOr<std::vector<int>> ListCoresOfThread();

}  // namespace ds
