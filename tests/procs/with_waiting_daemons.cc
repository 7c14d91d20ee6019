// with_waiting_daemons PROGRAM [ARGUMENTS]: runs a test while `dsrund --serve` keeps daemons for
// the dsruns that it starts. What holds for daemons of their own must hold for these.

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/places.h"
#include "tests/support/program.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: with_waiting_daemons PROGRAM [ARGUMENTS]\n");
    return 2;
  }
  const ds::testing::TemporaryFolder runtime;
  ::setenv("XDG_RUNTIME_DIR", runtime.path().c_str(), 1);
  ds::testing::Program pool({DS_BIN_DIR "/dsrund", "--serve", "--waiting", "4"});
  if (!pool.WaitForOutput("dsrund serves at ")) {
    std::fprintf(stderr, "no daemons wait: %s\n", pool.err().c_str());
    return 1;
  }
  pid_t test = -1;
  if (const int error = ::posix_spawn(&test, argv[1], nullptr, nullptr, argv + 1, environ)) {
    std::fprintf(stderr, "%s: %s\n", argv[1], std::strerror(error));
    return 1;
  }
  int status = 0;
  while (::waitpid(test, &status, 0) < 0 && errno == EINTR) {
  }
  pool.Signal(SIGTERM);
  const int served = pool.Wait().status;
  if (served != 0) std::fprintf(stderr, "dsrund --serve ended with %d\n", served);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? served : 1;
}
