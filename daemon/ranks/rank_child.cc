#include "daemon/ranks/rank_child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "runtime/process/thread_quota.h"

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer's own clone() treats the child as a fork. Because the child shares this process's
// memory, the sanitizer would then stop tracking the starting thread.
extern "C" int __clone(int (*)(void*), void*, int, void*, ...);
#endif

namespace ds::daemon {
namespace {

// Code of the child is not instrumented, because its thread-local storage is the starting thread's.
#define DS_CHILD_CODE __attribute__((no_sanitize("address", "thread", "undefined")))

// Makes a system call without touching errno. Returns the kernel's result: -errno on failure.
#if defined(__x86_64__)
DS_CHILD_CODE long RawSyscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0) {
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  asm volatile("syscall"
               : "+a"(number)
               : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
               : "rcx", "r11", "memory");
  return number;
}
#elif defined(__aarch64__)
DS_CHILD_CODE long RawSyscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0) {
  register long which asm("x8") = number;
  register long first asm("x0") = a;
  register long second asm("x1") = b;
  register long third asm("x2") = c;
  register long fourth asm("x3") = d;
  register long fifth asm("x4") = e;
  asm volatile("svc #0"
               : "+r"(first)
               : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
               : "memory");
  return first;
}
#else
#error "RawSyscall supports x86-64 and AArch64 only"
#endif

// Converts a pointer to a system call argument.
DS_CHILD_CODE long ToWord(const volatile void* pointer) { return reinterpret_cast<long>(pointer); }

constexpr int kLastSignal = 64;

DS_CHILD_CODE long MoveDescriptor(int from, int to) {
  // dup3 clears close-on-exec, but rejects copying a descriptor onto itself.
  return from == to ? RawSyscall(SYS_fcntl, to, F_SETFD, 0) : RawSyscall(SYS_dup3, from, to, 0);
}

DS_CHILD_CODE long SetUpDescriptors(const RankChild& child) {
  // The link is last, because its number may be that of a source above.
  const int moves[][2] = {{child.input, STDIN_FILENO},
                          {child.output, STDOUT_FILENO},
                          {child.error, STDERR_FILENO},
                          {child.link, kRankLinkFd}};
  for (const auto& [from, to] : moves) {
    if (const long result = MoveDescriptor(from, to); result < 0) return result;
  }
  // All other descriptors should be close-on-exec already. This handles libraries that forgot it,
  // and may fail on kernels before 5.9, or where a range is empty.
  RawSyscall(SYS_close_range, kRankLinkFd + 1, child.leaving - 1, 0);
  RawSyscall(SYS_close_range, child.leaving + 1, ~0U, 0);
  return 0;
}

DS_CHILD_CODE void ResetSignals() {
  struct {
    unsigned long zero[8];  // SIG_DFL, no flags, empty mask in the kernel's layout
  } const standard{};
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    RawSyscall(SYS_rt_sigaction, signal, ToWord(&standard), 0, sizeof(unsigned long));
  }
  const unsigned long none = 0;
  RawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, ToWord(&none), 0, sizeof(none));
}

// The kernel silently drops disallowed cores of a set, so the result must be checked.
DS_CHILD_CODE long BindToCores(const cpu_set_t& cores) {
  long result = RawSyscall(SYS_sched_setaffinity, 0, sizeof(cores), ToWord(&cores));
  if (result < 0) return result;
  cpu_set_t bound{};
  result = RawSyscall(SYS_sched_getaffinity, 0, sizeof(bound), ToWord(&bound));
  if (result < 0) return result;
  for (std::size_t i = 0; i < sizeof(bound.__bits) / sizeof(bound.__bits[0]); ++i) {
    if (bound.__bits[i] != cores.__bits[i]) return -EINVAL;
  }
  return 0;
}

DS_CHILD_CODE long SetLimits(const RankChild& child) {
  for (std::size_t i = 0; i < child.limit_count; ++i) {
    const RankLimit& limit = child.limits[i];
    const long result = RawSyscall(SYS_prlimit64, 0, limit.resource, ToWord(&limit.amounts), 0);
    if (result < 0) return result;
  }
  return 0;
}

// Moves the child into its group. CLONE_INTO_CGROUP would need an own clone3 for each architecture.
DS_CHILD_CODE void EnterGroup(RankChild* child) {
  if (child->group < 0) return;
  const char self = '0';
  const long result = RawSyscall(SYS_write, child->group, ToWord(&self), sizeof(self));
  if (result < 0) child->group_errno = static_cast<int>(-result);
}

// Creates a new session, and ties the rank's life to the daemon's.
DS_CHILD_CODE long BeginSession(const RankChild& child) {
  if (const long result = RawSyscall(SYS_setsid); result < 0) return result;
  if (const long result = RawSyscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL); result < 0) {
    return result;
  }
  // The daemon may have died before prctl. Then no process would ever stop this rank.
  return RawSyscall(SYS_getppid) == child.parent ? 0 : -ESRCH;
}

DS_CHILD_CODE void BeginStep(RankChild* child, ChildStep step) {
  __atomic_store_n(&child->step, static_cast<int>(step), __ATOMIC_RELAXED);
}

// Returns the failed step, with -errno in `result`. Does not return on success.
DS_CHILD_CODE ChildStep PrepareAndExecute(RankChild* rank, long* result) {
  const RankChild& child = *rank;
  EnterGroup(rank);  // first, so that whatever it does is in there
  if ((*result = BeginSession(child)) < 0) return ChildStep::kSession;
  if ((*result = SetUpDescriptors(child)) < 0) return ChildStep::kDescriptors;
  BeginStep(rank, ChildStep::kWorkingDirectory);
  if (child.working_directory != nullptr &&
      (*result = RawSyscall(SYS_chdir, ToWord(child.working_directory))) < 0) {
    return ChildStep::kWorkingDirectory;
  }
  if (child.cores != nullptr && (*result = BindToCores(*child.cores)) < 0) {
    return ChildStep::kCores;
  }
  if (child.settings.memory_mode != MPOL_DEFAULT &&
      (*result = RawSyscall(SYS_set_mempolicy, child.settings.memory_mode,
                            ToWord(&child.memory_nodes), kMaxMemoryNodes)) < 0) {
    return ChildStep::kMemory;
  }
  if (child.settings.umask != kInheritedUmask) RawSyscall(SYS_umask, child.settings.umask);
  if ((*result = SetLimits(child)) < 0) return ChildStep::kLimits;
  BeginStep(rank, ChildStep::kExecute);
  ResetSignals();
  *result = RawSyscall(SYS_execve, ToWord(child.executable), ToWord(child.argv),
                       ToWord(child.environment));
  return ChildStep::kExecute;
}

DS_CHILD_CODE int RunRankChild(void* rank_child) {
  auto* child = static_cast<RankChild*>(rank_child);
  long result = 0;
  const ChildStep failed = PrepareAndExecute(child, &result);
  child->failed_errno = static_cast<int>(-result);
  child->failed_step = failed;
  RawSyscall(SYS_exit_group, 127);
  return 127;
}

#if defined(__SANITIZE_THREAD__)
constexpr auto kClone = __clone;
#else
constexpr auto kClone = ::clone;
#endif

// Enough for code that only makes system calls.
constexpr std::size_t kStackBytes = 16 * 1024;
// With CLONE_CHILD_CLEARTID the kernel clears `shares_memory_` when the child leaves this memory.
constexpr int kFlags = CLONE_VM | CLONE_PIDFD | CLONE_CHILD_CLEARTID | SIGCHLD;

// Blocks every signal in the calling thread, and thereby in the children that it starts.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

StatusOr<std::unique_ptr<ClonedChild>> ClonedChild::Start(RankChild* rank) {
  std::unique_ptr<ClonedChild> child(new ClonedChild());
  DS_RETURN_IF_ERROR(child->Clone(rank));
  return child;
}

// The stack is not zeroed, because most of it is never used.
ClonedChild::ClonedChild() : stack_(new std::byte[kStackBytes]) {}

Status ClonedChild::Clone(RankChild* rank) {
  const SignalsBlocked blocked;
  int pidfd = -1;
  pid_ = kClone(RunRankChild, stack_.get() + kStackBytes, kFlags, rank, &pidfd, nullptr,
                &shares_memory_);
  if (pid_ < 0) {
    shares_memory_ = 0;
    if (errno == EAGAIN) return OutOfResourcesError("no process may be started");
    return ErrnoError(errno, "cannot start a process");
  }
  pidfd_.Reset(pidfd);
  return OkStatus();
}

void ClonedChild::AwaitLeaving() {
  static_assert(sizeof(shares_memory_) == sizeof(int));
  while (const int value = shares_memory_.load()) {
    // The call returns at once if the kernel has already cleared it.
    ::syscall(SYS_futex, &shares_memory_, FUTEX_WAIT, value, nullptr, nullptr, 0);
  }
}

}  // namespace ds::daemon
