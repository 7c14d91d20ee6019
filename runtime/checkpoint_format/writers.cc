#include "runtime/checkpoint_format/writers.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <span>
#include <string>

#include "runtime/base/files.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/reading.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

// Returns true for the errno of a file system without locks.
bool LacksLocks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

// The boot id differs between hosts and is the same in all containers of one host.
StatusOr<std::string> ReadBootId() { return ReadFile("/proc/sys/kernel/random/boot_id"); }

}  // namespace

StatusOr<FolderLock> FolderLock::Take(const fs::path& root, FileSystem& system) {
  const fs::path path = root / kFolderLockFile;
  const int opened = system.Open(path, O_RDWR | O_CREAT, 0644);
  if (opened < 0) return ErrnoError(-opened, path.string());
  UniqueFd file(opened);
  const int locked = system.Lock(file.get(), LOCK_EX);
  if (locked != 0 && !LacksLocks(-locked)) return ErrnoError(-locked, path.string());
  return FolderLock(std::move(file), locked == 0);
}

StatusOr<WriterMark> WriterMark::Leave(const fs::path& unfinished, FileSystem& system) {
  const fs::path path = unfinished / kWriterFile;
  DS_ASSIGN_OR_RETURN(const std::string boot, ReadBootId());
  const int created = system.Open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
  if (created < 0) return ErrnoError(-created, path.string());
  UniqueFd file(created);
  const int locked = system.Lock(file.get(), LOCK_EX | LOCK_NB);
  if (locked != 0 && !LacksLocks(-locked)) return ErrnoError(-locked, path.string());
  DS_RETURN_IF_ERROR(
      WriteAllAt(file.get(), 0, std::as_bytes(std::span(boot)), path.string(), system));
  return WriterMark(std::move(file));
}

StatusOr<bool> HasWriterMark(const fs::path& folder) { return Exists(folder / kWriterFile); }

bool IsAbandoned(const fs::path& unfinished, bool followed, const FolderLock& lock,
                 FileSystem& system) {
  if (!lock.held()) return followed;
  const fs::path path = unfinished / kWriterFile;
  const int opened = system.Open(path, O_RDWR, 0);
  // Under the folder's lock every living writer has a mark. Another error proves nothing.
  if (opened < 0) return opened == -ENOENT;
  const UniqueFd file(opened);
  const int locked = system.Lock(file.get(), LOCK_EX | LOCK_NB);
  if (locked != 0) return followed && LacksLocks(-locked);
  if (followed) return true;
  const StatusOr<std::string> own = ReadBootId();
  const StatusOr<std::string> writers = ReadFile(path);
  // A mark cut short by a full disk or a crash in Leave() was written under the folder's lock, too,
  // so a prefix of the boot id suffices.
  return own.ok() && writers.ok() && own->starts_with(*writers);
}

}  // namespace ds::checkpoint
