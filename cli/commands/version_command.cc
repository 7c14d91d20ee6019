#include "cli/commands/version_command.h"

#include <iostream>

#include "runtime/base/exit_codes.h"

namespace ds::cli {

StatusOr<int> VersionCommand(const Invocation&) {
  std::cout << "dsrun " << DS_VERSION << "\n" << std::flush;
  return kExitOk;
}

}  // namespace ds::cli
