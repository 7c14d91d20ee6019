#pragma once

// OwnedCgroup is a v2 control group for child processes, which lets the owner kill all descendants
// at once. A process cannot escape by starting its own session or by forking faster than it is
// killed.
//
// The group holds its owner's mark (owner_mark.h), and the owner holds a lock on it. A group is
// abandoned when its owner has provably ended. Abandoned groups are killed and removed by
// RemoveAbandoned and by the next Create in the same parent. Several processes may do so at once:
// they share the lock, and each continues if another stops midway. Without that proof a group
// belongs to another owner, regardless of its name.
//
// Create fails when a group cannot be made or marked (no v2, no permission).
//
// Not thread-safe.

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

class OwnedCgroup {
 public:
  // Creates the group dsrun-`name` below `parent`. An error means that no group can be used here.
  static StatusOr<std::unique_ptr<OwnedCgroup>> Create(const std::filesystem::path& parent,
                                                       const std::string& name);
  // Kills and removes the abandoned groups below `parent`. Waits up to `timeout` in total, and
  // leaves a group that still has processes for the next call.
  static void RemoveAbandoned(const std::filesystem::path& parent,
                              std::chrono::milliseconds timeout = {});
  // Removes the group, and the groups that Create found abandoned. A group with running processes
  // is left in place.
  ~OwnedCgroup();
  OwnedCgroup(const OwnedCgroup&) = delete;
  OwnedCgroup& operator=(const OwnedCgroup&) = delete;

  // The open folder.
  int fd() const { return folder_.get(); }
  const std::filesystem::path& path() const { return path_; }
  // Sends SIGKILL to every process in the group.
  void KillAll() const;

 private:
  OwnedCgroup(std::filesystem::path path, UniqueFd folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}

  const std::filesystem::path path_;
  const UniqueFd folder_;
};

}  // namespace ds
