#include "runtime/process/exit_process.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace ds {

void ExitProcess(int status) {
#if defined(__SANITIZE_ADDRESS__)
  __lsan_do_leak_check();
#endif
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(status);
}

void EndLikeChild(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // the core file is the child's
    std::signal(signal, SIG_DFL);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, signal);
    ::sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    std::raise(signal);
  }
  std::_Exit(WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : EXIT_FAILURE);
}

}  // namespace ds
