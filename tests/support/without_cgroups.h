#pragma once

// A machine without v2 control groups, for a program and what it starts.

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace ds::testing {

// In front of a program's words: it runs in a mount namespace where no group is to be seen. No word
// has a single quote.
inline std::vector<std::string> WithoutControlGroups() {
  return {"unshare",
          "--mount",
          "/bin/sh",
          "-c",
          "umount -l -a -t cgroup2 && ! grep -q cgroup2 /proc/self/mountinfo && exec \"$@\"",
          "sh"};
}

// False where that is not permitted: the tests that need it need "mounts".
inline bool CanHideControlGroups() {
  std::vector<std::string> probe = WithoutControlGroups();
  probe.push_back("/bin/true");
  return RunProgram(probe).status == 0;
}

}  // namespace ds::testing
