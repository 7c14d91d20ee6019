#pragma once

// RankChild is the code that a rank's process runs between clone and execve, and its error report.
// ClonedChild adds the process and a pidfd.
//
// The child shares this process's memory, including thread-local storage, until its execve or end,
// as after vfork. Unlike vfork, the caller continues at once, so that many children can start in
// parallel. The child may therefore only make system calls, and only without touching errno. All
// signals are blocked, so none of this process's handlers run in it.
//
// Not thread-safe. The child's parent-death signal is tied to the thread that starts it.

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

inline constexpr int kRankLinkFd = 3;

struct RankLimit {
  int resource = 0;  // RLIMIT_...
  rlimit64 amounts{};
};

// Process settings of a rank, copied unchanged from the request to the child. A plain value, so
// that code between clone and execve can read it.
inline constexpr std::uint32_t kInheritedUmask = ~0U;
struct ProcessSettings {
  std::uint32_t umask = kInheritedUmask;  // inherits the daemon's umask
  int memory_mode = MPOL_DEFAULT;         // for set_mempolicy(2); the default keeps the daemon's
};

// Memory nodes in the kernel's format.
inline constexpr std::size_t kMaxMemoryNodes = 1024;
using NodeMask = std::array<unsigned long, kMaxMemoryNodes / (8 * sizeof(unsigned long))>;

// The steps of the child, in this order.
enum class ChildStep {
  kNone,
  kSession,
  kDescriptors,
  kWorkingDirectory,
  kCores,
  kMemory,
  kLimits,
  kExecute
};

// The fields point to memory of the daemon. It must not change until the child has left that
// memory.
struct RankChild {
  const char* executable = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  const char* working_directory = nullptr;  // null = inherit
  const cpu_set_t* cores = nullptr;         // null = not bound
  ProcessSettings settings;
  NodeMask memory_nodes{};
  const RankLimit* limits = nullptr;
  std::size_t limit_count = 0;
  int group = -1;  // cgroup.procs of the control group that the child enters, open for writing
  int input = -1, output = -1, error = -1, link = -1;
  // The write end of a pipe, above kRankLinkFd and close-on-exec. It closes after the child has
  // left this memory.
  int leaving = -1;
  pid_t parent = -1;
  // Written by the child: its latest step that may wait for a file system. Read it with GetStep.
  int step = static_cast<int>(ChildStep::kNone);
  // Written by the child; read them after it has left.
  ChildStep failed_step = ChildStep::kNone;
  int failed_errno = 0;
  int group_errno = 0;  // why it is not in the control group, which ends no start

  ChildStep GetStep() const {
    return static_cast<ChildStep>(__atomic_load_n(&step, __ATOMIC_RELAXED));
  }
};

class ClonedChild {
 public:
  // `rank` must not move until the child has left.
  static StatusOr<std::unique_ptr<ClonedChild>> Start(RankChild* rank);
  // Blocks until the child no longer shares this memory: it has called execve or has ended.
  ~ClonedChild() { AwaitLeaving(); }
  ClonedChild(const ClonedChild&) = delete;
  ClonedChild& operator=(const ClonedChild&) = delete;

  pid_t pid() const { return pid_; }
  UniqueFd TakePidfd() { return std::move(pidfd_); }

  void AwaitLeaving();

 private:
  ClonedChild();
  Status Clone(RankChild* rank);

  const std::unique_ptr<std::byte[]> stack_;
  std::atomic<int> shares_memory_{1};  // the kernel clears it and wakes a futex on it
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

}  // namespace ds::daemon
