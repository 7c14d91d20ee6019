#pragma once

// The signals that a daemon handles in its loop: those that tell it to end (SIGTERM, SIGINT,
// SIGHUP) and SIGCHLD.

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// Lets signals of the calling thread, and of those it starts from now on, arrive at descriptors of
// OpenLoopSignals only.
void BlockLoopSignals();

// A signalfd of them, non-blocking and closed on exec.
StatusOr<UniqueFd> OpenLoopSignals();

}  // namespace ds::daemon
