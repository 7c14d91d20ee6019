#pragma once

// SpawnInNewSession starts a child process in a new session, so that a terminal's Ctrl-C does not
// reach it. The child has no blocked signals, this process's environment, and selected descriptors
// under selected numbers.
//
// Thread-safe.

#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds {

struct InheritedFd {
  int fd;      // the caller keeps it open
  int number;  // its number in the child; must be unique
};

// Returns the child's pid. The caller must wait for it. `program` is a path; the child sees `argv`
// as its arguments, from argv[0] on.
StatusOr<int> SpawnInNewSession(const std::string& program, std::vector<std::string> argv,
                                std::span<const InheritedFd> inherited);

}  // namespace ds
