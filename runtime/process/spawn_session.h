#pragma once

// SpawnInNewSession: a child process with a session of its own (a terminal's Ctrl-C is not for it),
// no signal blocked, this process's environment, and chosen descriptors under chosen numbers.
//
// Threads: safe to call concurrently.

#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds {

struct InheritedFd {
  int fd;      // stays open here
  int number;  // what the child finds it under; all differ
};

// The child's pid, which is to be waited for. `program` is a path; argv[0] is what it is told.
StatusOr<int> SpawnInNewSession(const std::string& program, std::vector<std::string> argv,
                                std::span<const InheritedFd> inherited);

}  // namespace ds
