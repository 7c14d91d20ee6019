#include "runtime/offload/scratch_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/base/host_name.h"

namespace ds::offload {
namespace {

constexpr int kFlags = O_RDWR | O_CLOEXEC;
constexpr mode_t kMode = 0600;
// Magic numbers that some versions of <linux/magic.h> lack.
constexpr long kXfs = 0x58465342;
constexpr long kNfs = 0x6969;
constexpr long kFuse = 0x65735546;
constexpr long kLustre = 0x0BD00BD0;
constexpr long kZfs = 0x2FC12FC1;

std::string NameOf(long magic) {
  switch (magic) {
    case EXT4_SUPER_MAGIC:
      return "ext4";
    case kXfs:
      return "xfs";
    case BTRFS_SUPER_MAGIC:
      return "btrfs";
    case TMPFS_MAGIC:
      return "tmpfs";
    case RAMFS_MAGIC:
      return "ramfs";
    case OVERLAYFS_SUPER_MAGIC:
      return "overlayfs";
    case kNfs:
      return "nfs";
    case kFuse:
      return "fuse";
    case kLustre:
      return "lustre";
    case kZfs:
      return "zfs";
    default:
      break;
  }
  char text[32];
  std::snprintf(text, sizeof text, "file system 0x%lx", static_cast<unsigned long>(magic));
  return text;
}

// Returns true for the errors of open(2) that mean that O_TMPFILE is not supported. File systems
// return EOPNOTSUPP or EINVAL. A kernel without the flag opens the folder itself for writing, which
// fails with EISDIR or ENOENT.
bool HasNoUnnamedFiles(int error) {
  return error == EOPNOTSUPP || error == EISDIR || error == ENOENT || error == EINVAL;
}

// Opens an unnamed file: with O_TMPFILE, or by unlinking the name right after creation. Returns the
// descriptor or the negative errno.
int OpenUnnamed(const std::filesystem::path& folder, int flags, FileSystem& system) {
  const int fd = system.Open(folder, flags | O_TMPFILE, kMode);
  if (fd >= 0 || !HasNoUnnamedFiles(-fd)) return fd;
  const std::filesystem::path path =
      folder / (".dsrun-offload-" + std::to_string(::getpid()) + "-" +
                std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
  const int named = system.Open(path, flags | O_CREAT | O_EXCL, kMode);
  if (named == -EEXIST) return named;  // another process created it, so do not unlink it
  // Unlink even after an error: a file system without O_DIRECT fails after it has created the file.
  const int removed = system.Unlink(path, 0);
  if (named < 0 || removed == 0) return named;
  system.Close(named);
  return removed;
}

// Returns the alignment in bytes that O_DIRECT needs for offsets, lengths and memory.
std::int64_t AlignmentOf(int fd) {
#ifdef STATX_DIOALIGN
  struct statx facts = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max<std::int64_t>({4096, facts.stx_dio_offset_align, facts.stx_dio_mem_align});
  }
#else
  static_cast<void>(fd);
#endif
  return 4096;  // usual drives have logical blocks of 512 or 4096 bytes
}

// Returns the free bytes found by statvfs or fstatvfs, or -1 when its result `asked` is an error.
std::int64_t FreeBytesOf(int asked, const struct statvfs& free_space) {
  if (asked != 0) return -1;
  return static_cast<std::int64_t>(free_space.f_bavail) *
         static_cast<std::int64_t>(free_space.f_frsize);
}

}  // namespace

std::int64_t FreeBytes(const std::filesystem::path& folder) {
  struct statvfs free_space = {};
  const int asked = ::statvfs(folder.c_str(), &free_space);
  return FreeBytesOf(asked, free_space);
}

ScratchFile::ScratchFile(FileSystem& system, FolderFacts facts, int fd)
    : system_(&system), facts_(std::move(facts)), fd_(fd) {}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : system_(other.system_),
      facts_(std::move(other.facts_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_) {}

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) system_->Close(fd_);
}

StatusOr<ScratchFile> ScratchFile::Create(const std::filesystem::path& folder, FileSystem& system) {
  const auto refuse = [&](int error) {
    return ErrnoError(
        error, "a file for offload in " + folder.string() + " on host " + HostName("this host"));
  };
  struct statfs kind = {};
  if (::statfs(folder.c_str(), &kind) != 0) {
    const Status status = refuse(errno);
    if (status.code() != StatusCode::kNotFound) return status;
    return Status(status.code(), status.message() + "; make the folder, or mount its drive, first");
  }
  FolderFacts facts{.folder = folder, .file_system = NameOf(kind.f_type)};
  facts.in_memory = kind.f_type == TMPFS_MAGIC || kind.f_type == RAMFS_MAGIC;
  int fd = OpenUnnamed(folder, kFlags | O_DIRECT, system);
  facts.direct = fd >= 0;
  // EINVAL means that the file system has no O_DIRECT; transfers then use the page cache.
  if (fd == -EINVAL) fd = OpenUnnamed(folder, kFlags, system);
  if (fd < 0) return refuse(-fd);
  facts.alignment = AlignmentOf(fd);
  return ScratchFile(system, std::move(facts), fd);
}

Status ScratchFile::Grow(std::int64_t size) {
  if (size <= size_) return OkStatus();
  const int allocated = system_->Allocate(fd_, size_, size - size_);
  // A file system without fallocate(2) only gets a longer file. A later write then reports a full
  // disk.
  if (allocated < 0 && allocated != -EOPNOTSUPP) {
    // Some file systems (ext4) keep the space that they allocated before the disk was full.
    const bool given_back = ::ftruncate(fd_, size_) == 0;
    return DescribeError(
        -allocated, "reserving space for " + ByteSize(static_cast<std::uint64_t>(size - size_)) +
                        " more" + (given_back ? "" : " (part of it is still reserved)"));
  }
  if (allocated < 0 && ::ftruncate(fd_, size) != 0) return DescribeError(errno, "growing");
  size_ = size;
  return OkStatus();
}

Status ScratchFile::DescribeError(int error, const std::string& what) const {
  const std::string where = what + " in the offload file of " + facts_.folder.string() + " (" +
                            facts_.file_system + ") on host " + HostName("this host");
  // Use the descriptor, because the folder may have been removed or be on another disk by now.
  struct statvfs disk = {};
  const int asked = ::fstatvfs(fd_, &disk);
  const std::int64_t free = FreeBytesOf(asked, disk);
  const std::string free_space =
      free < 0 ? "" : "; the disk has " + ByteSize(static_cast<std::uint64_t>(free)) + " free";
  // Error 0 stands for a read that found the end of the file.
  if (error == 0) return DataLossError(where + ": the file ends too early" + free_space);
  const Status status = ErrnoError(error, where);
  return Status(status.code(), status.message() + free_space);
}

}  // namespace ds::offload
