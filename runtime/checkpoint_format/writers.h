#pragma once

// FolderLock and WriterMark coordinate the writers of one checkpoint folder. They show which writer
// is changing names there, and whether the writer of an unfinished checkpoint is alive. Age proves
// nothing: a writer may have been stopped, or its host cut off, for any time.
//
// Both use flock(2); the kernel releases the lock when its holder ends. On a file system without
// locks only the generation decides: ranks of a superseded generation commit nothing.

#include <filesystem>
#include <utility>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::checkpoint {

// The lock of a checkpoint folder, root/.lock. Hold it only while names in the folder are read and
// changed. The destructor releases it.
class FolderLock {
 public:
  // Waits while another writer holds the lock. Succeeds on a file system without locks.
  static StatusOr<FolderLock> Take(const std::filesystem::path& root, FileSystem& system);

  bool held() const { return held_; }

 private:
  FolderLock(UniqueFd file, bool held) : file_(std::move(file)), held_(held) {}
  UniqueFd file_;
  bool held_;
};

// Proof that a writer is alive: a locked file in its unfinished folder with the host's boot id.
class WriterMark {
 public:
  static StatusOr<WriterMark> Leave(const std::filesystem::path& unfinished, FileSystem& system);

 private:
  explicit WriterMark(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

// Returns true when the folder holds a writer's mark. A user's copy of a checkpoint has none.
StatusOr<bool> HasWriterMark(const std::filesystem::path& folder);

// Returns true when no writer will ever finish the folder. Either its writer has ended, as its lock
// shows on the writer's own host (locks of some network file systems are local to a host). Or its
// generation was superseded (`followed`), so that it may not commit, and it does not prove that it
// is alive.
bool IsAbandoned(const std::filesystem::path& unfinished, bool followed, const FolderLock& lock,
                 FileSystem& system);

}  // namespace ds::checkpoint
