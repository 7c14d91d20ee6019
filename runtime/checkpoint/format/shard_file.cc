#include "runtime/checkpoint/format/shard_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/byte_size.h"
#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint/format/crc32c.h"

namespace ds::checkpoint {
namespace {

// Small enough that the bytes summed are still in the cache when they are copied to the page cache.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// The storage starts on what is written this long ago while the rest is still being summed.
constexpr std::uint64_t kWritebackBytes = std::uint64_t{16} << 20;

class PosixDataFile : public DataFile {
 public:
  PosixDataFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) override {
    std::uint64_t at = offset;
    while (!bytes.empty()) {
      const ssize_t written =
          ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return ErrnoError(errno, path_);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      at += static_cast<std::uint64_t>(written);
    }
    StartWriteback(at);
    return OkStatus();
  }

  Status Sync() override {
    if (::fsync(fd_.get()) != 0) return ErrnoError(errno, path_);
    return OkStatus();
  }

 private:
  // A hint only: Sync() reports what went wrong.
  void StartWriteback(std::uint64_t end) {
    if (end < handed_over_ + kWritebackBytes) return;
    ::sync_file_range(fd_.get(), static_cast<off_t>(handed_over_),
                      static_cast<off_t>(end - handed_over_), SYNC_FILE_RANGE_WRITE);
    handed_over_ = end;
  }

  UniqueFd fd_;
  std::string path_;
  std::uint64_t handed_over_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<DataFile>> CreateDataFile(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  return std::unique_ptr<DataFile>(std::make_unique<PosixDataFile>(std::move(fd), path.string()));
}

void ShardFileWriter::BeginShard() {
  shard_offset_ = (end_ + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  end_ = shard_offset_;
  crc_ = 0;
}

Status ShardFileWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    crc_ = ExtendCrc32c(crc_, piece);
    DS_RETURN_IF_ERROR(file_->WriteAt(end_, piece));
    end_ += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  return OkStatus();
}

StoredShard ShardFileWriter::EndShard(Region region) {
  return {std::move(region), name_, shard_offset_, end_ - shard_offset_, crc_};
}

Status CheckFreeSpace(const std::filesystem::path& directory, std::uint64_t needed) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) return ErrnoError(errno, directory.string());
  // Some network and user-space file systems do not say; writing will tell.
  if (info.f_blocks == 0) return OkStatus();
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (needed <= free) return OkStatus();
  return ResourceExhaustedError(
      fmt::format("{}: {} are needed and {} are free: delete old checkpoints or files there, "
                  "or choose another run directory",
                  directory.string(), ByteSize(needed), ByteSize(free)));
}

}  // namespace ds::checkpoint
