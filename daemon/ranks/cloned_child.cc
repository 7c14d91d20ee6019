#include "daemon/ranks/cloned_child.h"

#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer's own clone() takes the child for a fork. As it shares our memory, that would
// stop the sanitizer from seeing what the starting thread does from then on.
extern "C" int __clone(int (*)(void*), void*, int, void*, ...);
#endif

namespace ds::daemon {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr auto kClone = __clone;
#else
constexpr auto kClone = ::clone;
#endif

// Of code that only makes system calls.
constexpr std::size_t kStackBytes = 16 * 1024;
// CLONE_CHILD_CLEARTID: the kernel clears a number of ours when the child leaves our memory.
constexpr std::uint64_t kFlags = CLONE_VM | CLONE_PIDFD | CLONE_CHILD_CLEARTID;

#if defined(__x86_64__) && defined(CLONE_INTO_CGROUP)
// clone3 on a stack of its own. glibc has no wrapper, and its syscall() would return in the child
// on a stack without a caller. Returns the pid or -errno.
long CloneIntoCgroup(clone_args* arguments, int (*main)(void*), void* argument) {
  long result = SYS_clone3;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "mov %[argument], %%rdi\n\t"
      "call *%[main]\n\t"
      "hlt\n"  // main does not return
      "1:"
      : "+a"(result)
      : "D"(arguments), "S"(sizeof(*arguments)), [main] "r"(main), [argument] "r"(argument)
      : "rcx", "r11", "memory");
  return result;
}
#else
long CloneIntoCgroup(clone_args*, int (*)(void*), void*) { return -ENOSYS; }
#endif

// Blocks every signal of the calling thread, and so of the children it starts.
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

StatusOr<std::unique_ptr<ClonedChild>> ClonedChild::Start(int (*main)(void*), void* argument,
                                                          int cgroup) {
  std::unique_ptr<ClonedChild> child(new ClonedChild());
  DS_RETURN_IF_ERROR(child->Clone(main, argument, cgroup));
  return child;
}

// Not zeroed: most of a stack is never touched.
ClonedChild::ClonedChild() : stack_(new std::byte[kStackBytes]) {}

Status ClonedChild::Clone(int (*main)(void*), void* argument, int cgroup) {
  const SignalsBlocked blocked;
  int pidfd = -1;
  if (cgroup >= 0) {
    clone_args arguments{};
    arguments.flags = kFlags | CLONE_INTO_CGROUP;
    arguments.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
    arguments.child_tid = reinterpret_cast<std::uintptr_t>(&shares_memory_);
    arguments.exit_signal = SIGCHLD;
    arguments.stack = reinterpret_cast<std::uintptr_t>(stack_.get());
    arguments.stack_size = kStackBytes;
    arguments.cgroup = static_cast<std::uint64_t>(cgroup);
    pid_ = static_cast<pid_t>(CloneIntoCgroup(&arguments, main, argument));
  }
  if (pid_ < 0) {
    pid_ = kClone(main, stack_.get() + kStackBytes, static_cast<int>(kFlags) | SIGCHLD, argument,
                  &pidfd, nullptr, &shares_memory_);
  }
  if (pid_ < 0) {
    shares_memory_ = 0;
    return ErrnoError(errno, "cannot start a process");
  }
  pidfd_.Reset(pidfd);
  return OkStatus();
}

void ClonedChild::AwaitLeaving() {
  static_assert(sizeof(shares_memory_) == sizeof(int));
  while (const int value = shares_memory_.load()) {
    // Returns at once when the kernel has cleared it meanwhile.
    ::syscall(SYS_futex, &shares_memory_, FUTEX_WAIT, value, nullptr, nullptr, 0);
  }
}

}  // namespace ds::daemon
