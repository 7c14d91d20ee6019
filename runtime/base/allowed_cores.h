#pragma once

// ListCoresOfThread asks the kernel on which logical cores the calling thread may run.
//
// Threads: the calling one. Errors: what the kernel refuses, with its reason.

#include <vector>

#include "runtime/base/status.h"

namespace ds {

// Ascending; never empty.
StatusOr<std::vector<int>> ListCoresOfThread();

}  // namespace ds
