#pragma once

// Orphans: processes that ranks started and left behind. The daemon is their subreaper, so whatever
// leaves its rank's process group and outlives its parent becomes a child of the daemon, and does
// not outlive the generation.
//
// Strays: what has left its rank's process group, orphan or not. No signal to the groups reaches
// them.
//
// Threads: the one that starts the ranks. The process must have no children but ranks and orphans.

#include <sys/types.h>

#include <functional>
#include <vector>

#include "runtime/base/status.h"

namespace ds::daemon {

// Makes this process the one that orphaned descendants fall to.
Status AdoptOrphans();

// Takes the status of orphans that have ended, so that they do not pile up as zombies. `is_rank`
// tells which children are left to their monitors. Stops at one of those that has ended; the rest
// is for the next call.
void ReapOrphans(const std::function<bool(pid_t)>& is_rank);

// SIGTERM, and SIGCONT so that a stopped one takes it, to every stray. `ranks` are those that have
// not been reaped, whose groups have got theirs: what these leave behind meanwhile is not missed.
void TerminateStrays(const std::vector<pid_t>& ranks);

// Lists this process's children, ranks and orphans, that have not been reaped.
std::vector<pid_t> ListOwnChildren();

enum class Orphans { kAwait, kKill };

// Takes the status of children that have ended; kKill: kills all others. Requires: no rank is left.
// Returns true when there is no child any more, else it is called again at the next SIGCHLD.
bool EndOrphans(Orphans how);

}  // namespace ds::daemon
