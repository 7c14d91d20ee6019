#pragma once

// RankChild: what the process of a rank does between clone and execve, and where it says what did
// not work. ClonedChild: that process, plus a pidfd, plus a place in a control group.
//
// The child shares this process's memory, thread-local storage included, until its execve or end,
// as after vfork. Unlike after vfork the caller goes on at once, so that many children can be on
// their way together. The child's code may therefore only make system calls, and not through
// anything that touches errno. No handler of ours runs in it: every signal is blocked.
//
// Threads: one at a time; the child's parent-death signal is tied to the one that starts it.

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

// The settings of a rank's process that go unchanged from the request to the child: a plain value,
// so that code between clone and execve can read it.
inline constexpr std::uint32_t kInheritedUmask = ~0U;
struct ProcessSettings {
  std::uint32_t umask = kInheritedUmask;  // that is the daemon's
  int memory_mode = MPOL_DEFAULT;         // of set_mempolicy(2); this one leaves the daemon's
};

// Memory nodes as the kernel takes them.
inline constexpr std::size_t kMaxMemoryNodes = 1024;
using NodeMask = std::array<unsigned long, kMaxMemoryNodes / (8 * sizeof(unsigned long))>;

// The child takes these steps in this order.
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

// Its fields point to what belongs to the daemon and stays as it is until the child has left its
// memory.
struct RankChild {
  const char* executable = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  const char* working_directory = nullptr;  // null = stay
  const cpu_set_t* cores = nullptr;         // null = not bound
  ProcessSettings settings;
  NodeMask memory_nodes{};
  const RankLimit* limits = nullptr;
  std::size_t limit_count = 0;
  int input = -1, output = -1, error = -1, link = -1;
  pid_t parent = -1;
  // Written by the child; to be read once it has left.
  ChildStep failed_step = ChildStep::kNone;
  int failed_errno = 0;
};

class ClonedChild {
 public:
  // `rank` stays where it is until the child has left. `cgroup` is an open folder of a v2 control
  // group where the child begins; -1, or a kernel that refuses it (before 5.7, a threaded group),
  // leaves it in this process's.
  static StatusOr<std::unique_ptr<ClonedChild>> Start(RankChild* rank, int cgroup);
  ~ClonedChild() { AwaitLeaving(); }
  ClonedChild(const ClonedChild&) = delete;
  ClonedChild& operator=(const ClonedChild&) = delete;

  pid_t pid() const { return pid_; }
  UniqueFd TakePidfd() { return std::move(pidfd_); }

  // Returns when the child no longer shares this memory: it is past execve, or has ended.
  void AwaitLeaving();

 private:
  ClonedChild();
  Status Clone(RankChild* rank, int cgroup);

  const std::unique_ptr<std::byte[]> stack_;
  std::atomic<int> shares_memory_{1};  // cleared by the kernel, which then wakes a futex here
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

}  // namespace ds::daemon
