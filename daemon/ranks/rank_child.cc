#include "daemon/ranks/rank_child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "daemon/ranks/raw_syscall.h"

namespace ds::daemon {
namespace {

constexpr int kLastSignal = 64;

DS_CHILD_CODE long MoveDescriptor(int from, int to) {
  // dup3 clears close-on-exec, except that it refuses to copy a descriptor onto itself.
  return from == to ? RawSyscall(SYS_fcntl, to, F_SETFD, 0) : RawSyscall(SYS_dup3, from, to, 0);
}

DS_CHILD_CODE long SetUpDescriptors(const RankChild& child) {
  // The link comes last: its number may be that of a source above.
  const int moves[][2] = {{child.input, STDIN_FILENO},
                          {child.output, STDOUT_FILENO},
                          {child.error, STDERR_FILENO},
                          {child.link, kRankLinkFd}};
  for (const auto& [from, to] : moves) {
    if (const long result = MoveDescriptor(from, to); result < 0) return result;
  }
  // Everything else is close-on-exec already; this is for descriptors of libraries that forgot, and
  // may fail on kernels before 5.9.
  RawSyscall(SYS_close_range, kRankLinkFd + 1, ~0U, 0);
  return 0;
}

DS_CHILD_CODE void ResetSignals() {
  struct {
    unsigned long zero[8];  // SIG_DFL, no flags, empty mask in the kernel's layout
  } const standard{};
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    RawSyscall(SYS_rt_sigaction, signal, AddressOf(&standard), 0, sizeof(unsigned long));
  }
  const unsigned long none = 0;
  RawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, AddressOf(&none), 0, sizeof(none));
}

// The kernel takes a set of which it allows only some and leaves the others out without a word.
DS_CHILD_CODE long BindToCores(const cpu_set_t& cores) {
  long result = RawSyscall(SYS_sched_setaffinity, 0, sizeof(cores), AddressOf(&cores));
  if (result < 0) return result;
  cpu_set_t bound{};
  result = RawSyscall(SYS_sched_getaffinity, 0, sizeof(bound), AddressOf(&bound));
  if (result < 0) return result;
  for (std::size_t i = 0; i < sizeof(bound.__bits) / sizeof(bound.__bits[0]); ++i) {
    if (bound.__bits[i] != cores.__bits[i]) return -EINVAL;
  }
  return 0;
}

DS_CHILD_CODE long SetLimits(const RankChild& child) {
  for (std::size_t i = 0; i < child.limit_count; ++i) {
    const RankLimit& limit = child.limits[i];
    const long result = RawSyscall(SYS_prlimit64, 0, limit.resource, AddressOf(&limit.amounts), 0);
    if (result < 0) return result;
  }
  return 0;
}

// A session of its own, and an end with the daemon's.
DS_CHILD_CODE long LeaveAlone(const RankChild& child) {
  if (const long result = RawSyscall(SYS_setsid); result < 0) return result;
  if (const long result = RawSyscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL); result < 0) {
    return result;
  }
  // The daemon may have died before prctl: then nobody would ever stop this rank.
  return RawSyscall(SYS_getppid) == child.parent ? 0 : -ESRCH;
}

// The step that failed, with -errno in `result`; does not return otherwise.
DS_CHILD_CODE ChildStep PrepareAndExecute(const RankChild& child, long* result) {
  if ((*result = LeaveAlone(child)) < 0) return ChildStep::kSession;
  if ((*result = SetUpDescriptors(child)) < 0) return ChildStep::kDescriptors;
  if (child.working_directory != nullptr &&
      (*result = RawSyscall(SYS_chdir, AddressOf(child.working_directory))) < 0) {
    return ChildStep::kWorkingDirectory;
  }
  if (child.cores != nullptr && (*result = BindToCores(*child.cores)) < 0) {
    return ChildStep::kCores;
  }
  if (child.memory_mode != MPOL_DEFAULT &&
      (*result = RawSyscall(SYS_set_mempolicy, child.memory_mode, AddressOf(&child.memory_nodes),
                            kMaxMemoryNodes)) < 0) {
    return ChildStep::kMemory;
  }
  if (child.umask != nullptr) RawSyscall(SYS_umask, *child.umask);
  if ((*result = SetLimits(child)) < 0) return ChildStep::kLimits;
  ResetSignals();
  *result = RawSyscall(SYS_execve, AddressOf(child.executable), AddressOf(child.argv),
                       AddressOf(child.environment));
  return ChildStep::kExecute;
}

}  // namespace

DS_CHILD_CODE int RunRankChild(void* rank_child) {
  auto* child = static_cast<RankChild*>(rank_child);
  long result = 0;
  const ChildStep failed = PrepareAndExecute(*child, &result);
  child->failed_errno = static_cast<int>(-result);
  child->failed_step = failed;
  RawSyscall(SYS_exit_group, 127);
  return 127;
}

}  // namespace ds::daemon
