#pragma once

// ClonedChild: a child process on its way to execve, plus a pidfd, plus a place in a control group.
//
// The child shares this process's memory, thread-local storage included, until its execve or end,
// as after vfork. Unlike after vfork the caller goes on at once, so that many children can be on
// their way together. The child's code may therefore only make system calls, and not through
// anything that touches errno (raw_syscall.h). No handler of ours runs in it: every signal is
// blocked.
//
// Threads: one at a time; the child's parent-death signal is tied to the one that calls Start.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

class ClonedChild {
 public:
  // Runs `main(argument)` in a child; both must stay as they are until it has left. `cgroup` is an
  // open folder of a v2 control group where the child begins; -1, or a kernel that refuses it
  // (before 5.7, a threaded group), leaves it in this process's.
  static StatusOr<std::unique_ptr<ClonedChild>> Start(int (*main)(void*), void* argument,
                                                      int cgroup);
  ~ClonedChild() { AwaitLeaving(); }
  ClonedChild(const ClonedChild&) = delete;
  ClonedChild& operator=(const ClonedChild&) = delete;

  pid_t pid() const { return pid_; }
  UniqueFd TakePidfd() { return std::move(pidfd_); }

  // Returns when the child no longer shares this memory: it is past execve, or has ended.
  void AwaitLeaving();

 private:
  ClonedChild();
  Status Clone(int (*main)(void*), void* argument, int cgroup);

  const std::unique_ptr<std::byte[]> stack_;
  std::atomic<int> shares_memory_{1};  // cleared by the kernel, which then wakes a futex here
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

}  // namespace ds::daemon
