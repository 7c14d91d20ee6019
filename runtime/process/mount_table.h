#pragma once

// ParseMountTable parses /proc/PID/mountinfo, as described in proc(5). The kernel writes the table
// without asking the file systems, which may not answer. Pure.

#include <string>
#include <string_view>
#include <vector>

namespace ds {

struct Mount {
  std::string root;     // the path in the file system that is visible at the mount point
  std::string point;    // absolute
  std::string type;     // "ext4", "nfs4", "cgroup2"
  std::string options;  // of the file system; in cgroups v1 they name the controllers
};

// Returns the mounts in the order of the table: a later one hides an earlier one at the same point.
// Lines of another form are left out.
std::vector<Mount> ParseMountTable(std::string_view text);

}  // namespace ds
