#pragma once

// RankChild: what the process of a rank does between clone and execve, and where it says what did
// not work. Everything pointed to belongs to the daemon and stays as it is until the child has left
// its memory (cloned_child.h).

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace ds::daemon {

inline constexpr int kRankLinkFd = 3;

struct RankLimit {
  int resource = 0;  // RLIMIT_...
  rlimit64 amounts{};
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

struct RankChild {
  const char* executable = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  const char* working_directory = nullptr;  // null = stay
  const cpu_set_t* cores = nullptr;         // null = not bound
  int memory_mode = MPOL_DEFAULT;           // of set_mempolicy
  NodeMask memory_nodes{};
  const std::uint32_t* umask = nullptr;  // null = as it is
  const RankLimit* limits = nullptr;
  std::size_t limit_count = 0;
  int input = -1, output = -1, error = -1, link = -1;
  pid_t parent = -1;
  // Written by the child; to be read once it has left.
  ChildStep failed_step = ChildStep::kNone;
  int failed_errno = 0;
};

// ClonedChild runs it; `rank_child` is a RankChild.
int RunRankChild(void* rank_child);

}  // namespace ds::daemon
