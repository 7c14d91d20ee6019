#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "cli/front_end.h"
#include "runtime/base/log.h"

int main(int argc, char** argv) {
  ds::InitLog("dsrun");
  const int status = ds::cli::RunCommandLine(std::vector<std::string>(argv, argv + argc));
#if !defined(__SANITIZE_ADDRESS__)  // which looks for leaks at exit
  // Nothing is left to save, and gRPC's threads need not be ended one by one.
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(status);
#endif
  return status;
}
