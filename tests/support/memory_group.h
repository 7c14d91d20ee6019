#pragma once

// MemoryGroup: a control group with a memory limit, for a program and what it starts.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/process/cgroups.h"

namespace ds::testing {

// Below this process's own group, of either version. Taken away with the last process in it gone.
class MemoryGroup {
 public:
  // None where no group can be made (requirement "memory_groups").
  static std::optional<MemoryGroup> Make(std::uint64_t limit) {
    const OwnCgroups own = FindOwnCgroups();
    for (const auto& [parent, file] : {std::pair(own.unified, "memory.max"),
                                       std::pair(own.memory_v1, "memory.limit_in_bytes")}) {
      if (parent.empty()) continue;
      MemoryGroup group(parent / ("dsrun_test_" + std::to_string(::getpid())));
      if (::mkdir(group.path_.c_str(), 0755) != 0) continue;
      if (std::filesystem::exists(group.path_ / file) && std::ofstream(group.path_ / file)
                                                             << limit << std::flush) {
        return group;
      }
    }
    return std::nullopt;
  }
  MemoryGroup(MemoryGroup&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  MemoryGroup& operator=(MemoryGroup&&) = delete;
  ~MemoryGroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }

  // In front of a program's words: it runs in the group.
  std::vector<std::string> Enter() const {
    return {"/bin/sh", "-c", "echo $$ > '" + (path_ / "cgroup.procs").string() + "' && exec \"$@\"",
            "sh"};
  }

 private:
  explicit MemoryGroup(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace ds::testing
