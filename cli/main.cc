#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "cli/commands/front_end.h"
#include "runtime/base/log.h"
#include "runtime/process/descriptor_table.h"
#include "runtime/process/malloc_arena.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace {

// Before the constructors of gRPC, which open a descriptor and do not close it when it is number 0:
// a standard stream that nobody gave this process (`<&-`) would be that one.
[[gnu::constructor(101)]] void OpenStandardDescriptors() { ds::FillStandardDescriptors(); }

}  // namespace

int main(int argc, char** argv) {
  ds::LimitMallocArenas();
  ds::InitLog("dsrun");
  ds::ReserveDescriptors(1024);  // each rank has two logs
  const int status = ds::cli::RunCommandLine(std::vector<std::string>(argv, argv + argc));
#if defined(__SANITIZE_ADDRESS__)
  __lsan_do_leak_check();
#endif
  // Nothing is left to save, and gRPC's threads need not be ended one by one. They may be in the
  // middle of a handshake, so that exit handlers, OpenSSL's for one, must not run beside them.
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(status);
}
