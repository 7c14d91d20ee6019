#pragma once

// RunLock is the lock of a run directory: at most one dsrun, on any host that sees the folder, has
// it at a time.
//
// The lock is an open-file-description lock (F_OFD_SETLK) on the file job.lock, which NFS servers
// and cluster file systems carry to other hosts; a lock on the folder itself would be local to one
// client of NFS. It belongs to the open file, so a child process that inherits the descriptor takes
// it over, and it ends with the last process that has the file open. The content of the file names
// the holder for messages and decides nothing. The file stays when the lock is released: removing
// it would let two processes lock different files.
//
// Not thread-safe.

#include <filesystem>
#include <functional>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class RunLock {
 public:
  // Locks the open file without waiting. Returns 0 or an errno.
  using LockCall = std::function<int(int fd)>;
  static int LockOpenFile(int fd);

  // Fails with kFailedPrecondition if another process has the lock; the message names it. Every
  // other failure is an error, too, also that the file system has no locks. Messages begin with the
  // path of the folder or the file.
  static StatusOr<RunLock> Take(const std::filesystem::path& folder,
                                const LockCall& lock = LockOpenFile);

  // Names this process, which has inherited the lock, as its holder.
  Status TakeOver() const;

 private:
  RunLock(UniqueFd file, std::filesystem::path path)
      : file_(std::move(file)), path_(std::move(path)) {}

  UniqueFd file_;
  std::filesystem::path path_;
};

}  // namespace ds::cli
