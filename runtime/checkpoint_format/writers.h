#pragma once

// FolderLock and WriterMark let the writers of one checkpoint folder know of each other: who
// changes names there just now, and whether who began an unfinished checkpoint still lives. Age
// proves nothing: a writer may have been stopped, or its host cut off, for any time.
//
// Both rest on flock(2), which the kernel gives up when its holder ends. Where a file system has no
// locks the generation alone tells: ranks of one that has been followed commit nothing.

#include <filesystem>
#include <utility>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::checkpoint {

// The lock of a checkpoint folder, root/.lock: held for the moments in which names there are
// looked at and changed, and given up with the object.
class FolderLock {
 public:
  // Waits while another writer holds it. A file system without locks is no error.
  static StatusOr<FolderLock> Take(const std::filesystem::path& root, FileSystem& system);

  bool held() const { return held_; }

 private:
  FolderLock(UniqueFd file, bool held) : file_(std::move(file)), held_(held) {}
  UniqueFd file_;
  bool held_;
};

// A writer's proof of life: a file in its unfinished folder which names the host's boot and which
// it keeps locked.
class WriterMark {
 public:
  static StatusOr<WriterMark> Leave(const std::filesystem::path& unfinished, FileSystem& system);

 private:
  explicit WriterMark(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

// True when a writer's mark is in the folder, which a user's copy of a checkpoint has not.
StatusOr<bool> HasWriterMark(const std::filesystem::path& folder);

// True when nobody will ever finish the folder: its writer has ended, which its lock tells on the
// host that it ran on (locks of some network file systems end at the host), or it may not commit
// any more, being of a generation that was `followed`, and does not prove that it lives.
bool IsAbandoned(const std::filesystem::path& unfinished, bool followed, const FolderLock& lock,
                 FileSystem& system);

}  // namespace ds::checkpoint
