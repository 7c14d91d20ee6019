#pragma once

// OwnedCgroup: a v2 control group for processes that its owner starts, so that everything below
// them can be killed at once and nothing can slip out: not by a session of its own, not by forking
// faster than somebody kills.
//
// A group holds its owner's mark (owner_mark.h), and its owner holds a lock on it. One whose
// owner is provably gone is ended and removed by whoever looks after the owner's end, or by the
// next owner of a group beside it, or by several at once: they share the lock, and each finishes
// where another ends in the middle. Without that proof a group is somebody else's, whatever it is
// called.
//
// There is none where a group may not be made or marked (no v2, no permission).
//
// Threads: one at a time.

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

class OwnedCgroup {
 public:
  // Makes the group dsrun-`name` below `parent`. Any error means: not here.
  static StatusOr<std::unique_ptr<OwnedCgroup>> Create(const std::filesystem::path& parent,
                                                       const std::string& name);
  // Ends and removes the groups below `parent` whose owners are gone. One whose processes have not
  // ended after `patience` stays for the next time.
  static void RemoveAbandoned(const std::filesystem::path& parent,
                              std::chrono::milliseconds patience = {});
  // Removes the group, and what Create has found abandoned; requires that their processes have
  // ended, else they stay behind.
  ~OwnedCgroup();
  OwnedCgroup(const OwnedCgroup&) = delete;
  OwnedCgroup& operator=(const OwnedCgroup&) = delete;

  // The open folder, for CloneChild.
  int fd() const { return folder_.get(); }
  const std::filesystem::path& path() const { return path_; }
  // SIGKILL to every process in it.
  void KillAll() const;

 private:
  OwnedCgroup(std::filesystem::path path, UniqueFd folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}

  const std::filesystem::path path_;
  const UniqueFd folder_;
};

}  // namespace ds
