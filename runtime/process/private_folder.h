#pragma once

// PrivateFolder: a folder that only this user can enter (0700), for the sockets and files of one
// job, under $XDG_RUNTIME_DIR or /tmp. Its path leaves room for the name of a unix socket, so a
// long $XDG_RUNTIME_DIR is passed over.
//
// The folder holds its maker's mark (owner_mark.h), and every process that uses it holds a lock on
// it, which ends with the process. The next Make, of any job, removes a folder of this user that
// has the mark of a process that has ended and that nobody holds. Where files cannot be locked
// nothing is removed like that.
//
// Threads: one at a time.

#include <filesystem>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

class PrivateFolder {
 public:
  PrivateFolder() = default;  // none
  static StatusOr<PrivateFolder> Make();
  // Holds one that another process has made and holds now. kPermissionDenied when others may enter.
  static StatusOr<PrivateFolder> Join(const std::filesystem::path& path);
  // Removes those of this user whose makers have ended and that nobody holds.
  static void RemoveAbandoned();

  const std::filesystem::path& path() const { return path_; }
  // Removes it with all that is in it. Its end alone only lets go of it.
  void Remove();
  // Removes it if it holds nothing but its mark: for those that have joined it.
  void RemoveIfUnused() const;

 private:
  PrivateFolder(std::filesystem::path path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace ds
