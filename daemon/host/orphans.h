#pragma once

// Orphans are processes that ranks started and left running. The daemon is their subreaper. A
// process that leaves its rank's process group and outlives its parent becomes a child of the
// daemon, and ends with the generation at the latest.
//
// Strays are processes outside their rank's process group, orphaned or not. Signals to the groups
// do not reach them.
//
// Not thread-safe: call these functions on the thread that starts the ranks. The process must have
// no children except ranks and orphans; ReapOrphans can leave others alone.

#include <sys/types.h>

#include <functional>
#include <vector>

#include "runtime/base/status.h"

namespace ds::daemon {

// Makes this process the subreaper, the parent of orphaned descendants.
Status AdoptOrphans();

// Reaps orphans that have ended, so that they do not accumulate as zombies. Children for which
// `is_awaited` returns true, as ranks, are left to others. Stops at the first of them that has
// ended; the next call reaps the remaining orphans.
void ReapOrphans(const std::function<bool(pid_t)>& is_awaited);

// Sends SIGTERM to every stray, and SIGCONT so that a stopped one receives it. `ranks` are the
// unreaped ranks; their groups must have been signalled before. Processes that the ranks orphan
// meanwhile are included.
void TerminateStrays(const std::vector<pid_t>& ranks);

// Lists this process's unreaped children: ranks and orphans.
std::vector<pid_t> ListOwnChildren();

enum class Orphans { kAwait, kKill };

// Reaps ended children. With kKill, also kills the others. Requires that no rank is left. Returns
// true if there are no children any more, else call it again at the next SIGCHLD.
bool EndOrphans(Orphans how);

}  // namespace ds::daemon
