#pragma once

// CheckThreadQuota tests whether enough threads can be started, for code that depends on them. gRPC
// is such code: when it cannot start a thread of its own, it waits for that thread's work forever,
// or aborts.

#include <string>

#include "runtime/base/status.h"

namespace ds {

// Returns kResourceExhausted for an EAGAIN of fork or thread creation, and names the limits to
// check.
Status OutOfResourcesError(const std::string& what);

// Starts `count` threads in addition to the process's own threads and ends them again. On failure
// returns kResourceExhausted with the number that could be started and the reason. The quota is not
// reserved, so start the needed threads right after the check.
//
// Thread-safe.
Status CheckThreadQuota(int count);

}  // namespace ds
