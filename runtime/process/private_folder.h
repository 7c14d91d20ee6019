#pragma once

// PrivateFolder: a folder that only this user can enter (0700), for the sockets and files of one
// job, under $XDG_RUNTIME_DIR or /tmp. Its path leaves room for the name of a unix socket, so a
// long $XDG_RUNTIME_DIR is passed over.
//
// Every process that uses one holds a lock on it, which ends with the process, however that ends.
// A folder that nobody holds was left behind by processes that were killed: the next Make, of
// whichever job, removes it. Where files cannot be locked none is ever removed like that.
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
  // Removes those of this user that nobody holds.
  static void RemoveAbandoned();

  const std::filesystem::path& path() const { return path_; }
  // Removes it with all that is in it. Its end alone only lets go of it.
  void Remove();

 private:
  PrivateFolder(std::filesystem::path path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace ds
