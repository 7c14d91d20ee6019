#pragma once

// Orphans: processes that ranks started and left behind. The daemon is their subreaper, so whatever
// leaves its rank's process group and outlives its parent becomes a child of the daemon, and does
// not outlive the generation.
//
// Threads: the one that starts the ranks. The process must have no children but ranks and orphans.

#include <sys/types.h>

#include <functional>

#include "runtime/base/status.h"

namespace ds::daemon {

// Makes this process the one that orphaned descendants fall to.
Status AdoptOrphans();

// Takes the status of orphans that have ended, so that they do not pile up as zombies. `is_rank`
// tells which children are left to their monitors. Stops at one of those that has ended; the rest
// is for the next call.
void ReapOrphans(const std::function<bool(pid_t)>& is_rank);

// Kills every child. Requires: no rank is left. Returns true when there is no child any more, else
// it is called again at the next SIGCHLD.
bool KillOrphans();

}  // namespace ds::daemon
