#include "runtime/process/exit_process.h"

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

}  // namespace ds
