#include "runtime/checkpoint_format/shard_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/check.h"
#include "runtime/checkpoint_format/crc32c.h"

namespace ds::checkpoint {

StatusOr<ShardReader> ShardReader::Open(const std::filesystem::path& directory,
                                        const StoredShard& shard) {
  const std::filesystem::path path = directory / shard.file;
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  return ShardReader(std::move(fd), path.string(), shard);
}

Status ShardReader::Read(std::uint64_t at, std::span<std::byte> into) {
  DS_CHECK(at <= shard_->length && into.size() <= shard_->length - at);
  const std::uint64_t chunk_bytes = shard_->ChecksummedBytes();
  if (chunk_bytes > kChunkBytes) return ReadInOrder(at, into);
  while (!into.empty()) {
    const std::uint64_t chunk = at / chunk_bytes;
    const std::uint64_t begin = chunk * chunk_bytes;
    const std::uint64_t length = std::min(chunk_bytes, shard_->length - begin);
    const std::uint64_t count = std::min<std::uint64_t>(begin + length - at, into.size());
    if (count == length) {
      DS_RETURN_IF_ERROR(ReadChunk(chunk, into.first(count)));
    } else {
      if (held_.empty() || held_chunk_ != chunk) {
        held_.resize(length);
        Status read = ReadChunk(chunk, held_);
        if (!read.ok()) held_.clear();
        DS_RETURN_IF_ERROR(read);
        held_chunk_ = chunk;
      }
      std::copy_n(held_.begin() + static_cast<std::ptrdiff_t>(at - begin), count, into.begin());
    }
    into = into.subspan(count);
    at += count;
  }
  return OkStatus();
}

Status ShardReader::ReadUnverified(std::uint64_t at, std::span<std::byte> into) const {
  std::uint64_t offset = shard_->offset + at;
  while (!into.empty()) {
    const ssize_t got = ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, path_);
    if (got == 0) return DataLossError(fmt::format("{} is truncated at byte {}", path_, offset));
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return OkStatus();
}

Status ShardReader::ReadInOrder(std::uint64_t at, std::span<std::byte> into) {
  DS_RETURN_IF_ERROR(ReadUnverified(at, into));
  if (at != read_in_order_) return OkStatus();
  crc_in_order_ = ExtendCrc32c(crc_in_order_, into);
  read_in_order_ += into.size();
  if (read_in_order_ < shard_->length || crc_in_order_ == shard_->crc32c.front()) return OkStatus();
  return DataLossError(fmt::format("{} has a wrong checksum ({} bytes from {})", path_,
                                   shard_->length, shard_->offset));
}

Status ShardReader::ReadChunk(std::uint64_t chunk, std::span<std::byte> into) const {
  const std::uint64_t at = chunk * shard_->ChecksummedBytes();
  DS_RETURN_IF_ERROR(ReadUnverified(at, into));
  if (ExtendCrc32c(0, into) == shard_->crc32c[chunk]) return OkStatus();
  return DataLossError(fmt::format("{} has a wrong checksum (bytes {} to {})", path_,
                                   shard_->offset + at, shard_->offset + at + into.size()));
}

}  // namespace ds::checkpoint
