#include "runtime/checkpoint_format/shard_file_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/byte_size.h"
#include "runtime/base/files.h"
#include "runtime/checkpoint_format/crc32c.h"

namespace ds::checkpoint {
namespace {

// Append checksums and writes this many bytes at a time, so that they are still in the CPU's cache
// when write(2) copies them to the page cache.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// After each run of this many bytes the kernel is asked to write them to storage. The disk then
// works while later bytes are checksummed, and the fsync in Finish has less to wait for.
constexpr std::uint64_t kWritebackBytes = std::uint64_t{16} << 20;

}  // namespace

StatusOr<ShardFileWriter> ShardFileWriter::Create(const std::filesystem::path& path,
                                                  FileSystem& system) {
  const int created = system.Open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (created < 0) return ErrnoError(-created, path.string());
  return ShardFileWriter(UniqueFd(created), path, system);
}

void ShardFileWriter::BeginShard() {
  // The gap before the shard becomes a hole in the file, which reads as zeros.
  shard_offset_ = (end_ + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  end_ = shard_offset_;
  crcs_.clear();
}

Status ShardFileWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t in_chunk = (end_ - shard_offset_) % kChunkBytes;
    if (in_chunk == 0) crcs_.push_back(0);
    const auto piece =
        bytes.first(std::min<std::uint64_t>({bytes.size(), kPieceBytes, kChunkBytes - in_chunk}));
    crcs_.back() = ExtendCrc32c(crcs_.back(), piece);
    DS_RETURN_IF_ERROR(WriteAllAt(fd_.get(), end_, piece, path_.string(), *system_));
    end_ += piece.size();
    StartWriteback();
    bytes = bytes.subspan(piece.size());
  }
  return OkStatus();
}

// This is only a hint, so its errors are ignored. fsync in Finish reports failed writes.
void ShardFileWriter::StartWriteback() {
  if (end_ < handed_over_ + kWritebackBytes) return;
  ::sync_file_range(fd_.get(), static_cast<off_t>(handed_over_),
                    static_cast<off_t>(end_ - handed_over_), SYNC_FILE_RANGE_WRITE);
  handed_over_ = end_;
}

StoredShard ShardFileWriter::EndShard(Region region) {
  return {std::move(region), path_.filename().string(), shard_offset_, end_ - shard_offset_, crcs_};
}

Status ShardFileWriter::Finish() {
  const int synced = system_->Sync(fd_.get());
  if (synced != 0) return ErrnoError(-synced, path_.string());
  const int closed = system_->Close(fd_.Release());
  return closed == 0 ? OkStatus() : ErrnoError(-closed, path_.string());
}

Status CheckFreeSpace(const std::filesystem::path& directory, std::uint64_t needed) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) return ErrnoError(errno, directory.string());
  // Some network and user-space file systems report no sizes. There a full disk is found by a
  // write.
  if (info.f_blocks == 0) return OkStatus();
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (needed <= free) return OkStatus();
  return ResourceExhaustedError(
      fmt::format("{}: {} are needed and {} are free: delete old checkpoints or files there, "
                  "or choose another run directory",
                  directory.string(), ByteSize(needed), ByteSize(free)));
}

}  // namespace ds::checkpoint
