#include "daemon/clone_child.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>

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

constexpr std::size_t kChildStackBytes = 64 * 1024;
constexpr std::uint64_t kFlags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD;

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

pid_t TryIntoCgroup(int (*main)(void*), void* argument, int cgroup, std::byte* stack, int* pidfd) {
  clone_args arguments{};
  arguments.flags = kFlags | CLONE_INTO_CGROUP;
  arguments.pidfd = reinterpret_cast<std::uintptr_t>(pidfd);
  arguments.exit_signal = SIGCHLD;
  arguments.stack = reinterpret_cast<std::uintptr_t>(stack);
  arguments.stack_size = kChildStackBytes;
  arguments.cgroup = static_cast<std::uint64_t>(cgroup);
  return static_cast<pid_t>(CloneIntoCgroup(&arguments, main, argument));
}
#else
pid_t TryIntoCgroup(int (*)(void*), void*, int, std::byte*, int*) { return -1; }
#endif

}  // namespace

StatusOr<ClonedChild> CloneChild(int (*main)(void*), void* argument, int cgroup) {
  const auto stack = std::make_unique<std::byte[]>(kChildStackBytes);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int pidfd = -1;
  pid_t pid = -1;
  if (cgroup >= 0) pid = TryIntoCgroup(main, argument, cgroup, stack.get(), &pidfd);
  if (pid < 0) {
    pid = kClone(main, stack.get() + kChildStackBytes, static_cast<int>(kFlags) | SIGCHLD, argument,
                 &pidfd);
  }
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return ErrnoError(error, "cannot start a process");
  return ClonedChild{pid, UniqueFd(pidfd)};
}

}  // namespace ds::daemon
