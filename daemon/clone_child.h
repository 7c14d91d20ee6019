#pragma once

// CloneChild: what vfork does, plus a pidfd, plus a place in a control group.
//
// The child shares this process's memory while the calling thread waits for its execve or end, so
// its code may only make system calls. No handler of ours runs in it: every signal is blocked.
//
// Threads: any; the child's parent-death signal is tied to the calling one.

#include <sys/types.h>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

struct ClonedChild {
  pid_t pid = -1;
  UniqueFd pidfd;
};

// Runs `main(argument)` in a child. `cgroup` is an open folder of a v2 control group where the
// child begins; -1, or a kernel that refuses it (before 5.7, a threaded group), leaves it in this
// process's.
StatusOr<ClonedChild> CloneChild(int (*main)(void*), void* argument, int cgroup);

}  // namespace ds::daemon
