#pragma once

// PrivateFolder is a folder that only this user can enter (0700), for the sockets and files of one
// job. It is made under $XDG_RUNTIME_DIR or /tmp. A $XDG_RUNTIME_DIR too long for the path of a
// unix socket in the folder is skipped.
//
// The folder holds its maker's mark (owner_mark.h). Every process that uses the folder holds a lock
// on it, which ends with the process. The next Make, of any job, removes folders of this user that
// are unlocked and have the mark of an ended process. On a file system without file locks no such
// folder is removed.
//
// Not thread-safe.

#include <filesystem>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

class PrivateFolder {
 public:
  PrivateFolder() = default;  // holds no folder
  static StatusOr<PrivateFolder> Make();
  // Opens and locks a folder that another process has made and holds. Fails with kPermissionDenied
  // when others may enter it.
  static StatusOr<PrivateFolder> Join(const std::filesystem::path& path);
  // Removes this user's folders that no process holds after their maker has ended.
  static void RemoveAbandoned();

  const std::filesystem::path& path() const { return path_; }
  // Removes the folder and its contents. The destructor only releases the lock.
  void Remove();
  // Removes the folder if it contains nothing but its mark. For processes that joined it.
  void RemoveIfUnused() const;

 private:
  PrivateFolder(std::filesystem::path path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace ds
