#include "runtime/checkpoint_format/verify.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <span>
#include <thread>

#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/reading.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// An open file under verification.
struct OpenFile {
  FileSystem& system;
  int fd;
  std::uint64_t size;
  std::vector<std::byte> buffer;
};

// Returns the checksum of [at, end) of the file. Fails with kDataLoss when the file ends before
// `end`, and with kUnavailable when it cannot be read now.
StatusOr<std::uint32_t> ChecksumOf(OpenFile* file, std::uint64_t at, std::uint64_t end) {
  std::uint32_t crc = 0;
  while (at < end) {
    const std::size_t want = std::min<std::uint64_t>(end - at, file->buffer.size());
    const std::span<std::byte> piece = std::span(file->buffer).first(want);
    const ssize_t got = file->system.Read(file->fd, piece, static_cast<off_t>(at));
    if (got < 0) return ReadError(static_cast<int>(-got), "it cannot be read");
    if (got == 0) return DataLossError("the file ends inside it");
    crc = ExtendCrc32c(crc, piece.first(static_cast<std::size_t>(got)));
    at += static_cast<std::uint64_t>(got);
  }
  return crc;
}

// Fails with kDataLoss, which describes the damage, or kUnavailable as above.
Status CheckShard(OpenFile* file, const StoredShard& shard) {
  if (shard.offset + shard.length > file->size) {
    return DataLossError(
        fmt::format("the file is truncated: it has {} bytes, the tensor's shard ends at {}",
                    file->size, shard.offset + shard.length));
  }
  const std::uint64_t end = shard.offset + shard.length;
  std::uint64_t at = shard.offset;
  for (const std::uint32_t saved : shard.crc32c) {
    const std::uint64_t until = std::min(at + shard.ChecksummedBytes(), end);
    DS_ASSIGN_OR_RETURN(const std::uint32_t crc, ChecksumOf(file, at, until));
    if (crc != saved) {
      return DataLossError(fmt::format("its checksum is {:08x}, {:08x} was saved (bytes {} to {})",
                                       crc, saved, at, until));
    }
    at = until;
  }
  return OkStatus();
}

using ShardsByFile = std::map<std::string, std::vector<NamedShard>>;

ShardsByFile GroupByFile(const Manifest& manifest) {
  ShardsByFile files;
  for (const StoredTensor& tensor : manifest.tensors) {
    for (const StoredShard& shard : tensor.shards) {
      files[shard.file].push_back({tensor.name, shard});
    }
  }
  return files;
}

// Reports proven damages in preference to files that cannot be read now.
StatusOr<std::vector<Damage>> VerifyFiles(const fs::path& directory, const ShardsByFile& files,
                                          FileSystem& system) {
  std::vector<const ShardsByFile::value_type*> work;
  for (const auto& file : files) work.push_back(&file);
  std::vector<StatusOr<std::vector<Damage>>> found(work.size(), std::vector<Damage>());
  std::atomic<std::size_t> next{0};
  const auto verify_next = [&] {
    for (std::size_t i = next++; i < work.size(); i = next++) {
      found[i] = VerifyShards(directory / work[i]->first, work[i]->second, system);
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t threads =
        std::min<std::size_t>(work.size(), std::max(1U, std::thread::hardware_concurrency()));
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(verify_next);
    verify_next();
  }
  std::vector<Damage> damages;
  Status unknown;
  for (StatusOr<std::vector<Damage>>& of_file : found) {
    if (of_file.ok()) {
      std::move(of_file->begin(), of_file->end(), std::back_inserter(damages));
    } else if (unknown.ok()) {
      unknown = of_file.status();
    }
  }
  if (damages.empty() && !unknown.ok()) return unknown;
  return damages;
}

}  // namespace

std::string Describe(const Damage& damage) {
  if (damage.tensor.empty()) return fmt::format("{}: {}", damage.file, damage.reason);
  return fmt::format("{}: tensor '{}': {}", damage.file, damage.tensor, damage.reason);
}

StatusOr<std::vector<Damage>> VerifyShards(const fs::path& path, std::vector<NamedShard> shards,
                                           FileSystem& system) {
  const std::string name = path.filename().string();
  const int opened = system.Open(path, O_RDONLY | O_NONBLOCK, 0);
  const UniqueFd fd(opened < 0 ? -1 : opened);
  struct stat info {};
  const int failed = opened < 0 ? -opened : ::fstat(fd.get(), &info) != 0 ? errno : 0;
  if (failed != 0) {
    const Status error = ReadError(failed, "it cannot be opened");
    if (error.code() == StatusCode::kUnavailable) return error.WithContext(name);
    return std::vector<Damage>{{name, "", error.message()}};
  }
  if (!S_ISREG(info.st_mode)) return std::vector<Damage>{{name, "", "it is not a regular file"}};
  std::sort(shards.begin(), shards.end(), [](const NamedShard& a, const NamedShard& b) {
    return a.shard.offset < b.shard.offset;
  });
  std::vector<Damage> damages;
  Status unknown;
  OpenFile file{system, fd.get(), static_cast<std::uint64_t>(info.st_size),
                std::vector<std::byte>(kReadBytes)};
  for (const NamedShard& named : shards) {
    const Status status = CheckShard(&file, named.shard);
    if (status.code() == StatusCode::kDataLoss) {
      damages.push_back({name, named.tensor, status.message()});
    } else if (!status.ok() && unknown.ok()) {
      unknown = status.WithContext(name + ": tensor '" + named.tensor + "'");
    }
  }
  if (damages.empty() && !unknown.ok()) return unknown;
  return damages;
}

StatusOr<VerifyReport> VerifyCheckpoint(const fs::path& directory, FileSystem& system) {
  VerifyReport report;
  const StatusOr<Manifest> manifest = ReadManifest(directory, system);
  if (!manifest.ok()) {
    const StatusCode code = manifest.status().code();
    if (code == StatusCode::kNotFound || code == StatusCode::kUnavailable) return manifest.status();
    report.damages.push_back({kManifestFile, "", manifest.status().message()});
    return report;
  }
  report.step = manifest->step;
  report.tensors = manifest->tensors.size();
  for (const StoredTensor& tensor : manifest->tensors) {
    for (const StoredShard& shard : tensor.shards) report.data_bytes += shard.length;
  }
  const auto named_step = StepOfDirectoryName(directory.filename().string());
  if (named_step && *named_step != manifest->step) {
    report.damages.push_back({kManifestFile, "",
                              fmt::format("it has step {}, the folder {}", manifest->step,
                                          directory.filename().string())});
  }
  StatusOr<std::vector<Damage>> damages = VerifyFiles(directory, GroupByFile(*manifest), system);
  if (!damages.ok() && report.ok()) return damages.status().WithContext(directory.string());
  if (damages.ok()) std::move(damages->begin(), damages->end(), std::back_inserter(report.damages));
  return report;
}

}  // namespace ds::checkpoint
