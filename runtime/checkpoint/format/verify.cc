#include "runtime/checkpoint/format/verify.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint/format/crc32c.h"
#include "runtime/checkpoint/format/file_names.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// The checksum of [at, end) as the file has it.
StatusOr<std::uint32_t> ChecksumOf(int fd, std::uint64_t at, std::uint64_t end,
                                   std::vector<std::byte>* buffer) {
  std::uint32_t crc = 0;
  while (at < end) {
    const std::size_t want = std::min<std::uint64_t>(end - at, buffer->size());
    const ssize_t got = ::pread(fd, buffer->data(), want, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "it cannot be read");
    if (got == 0) return DataLossError("the file ends inside it");
    crc = ExtendCrc32c(crc, std::span(*buffer).first(static_cast<std::size_t>(got)));
    at += static_cast<std::uint64_t>(got);
  }
  return crc;
}

std::string ShardProblem(int fd, std::uint64_t file_size, const StoredShard& shard,
                         std::vector<std::byte>* buffer) {
  if (shard.offset + shard.length > file_size) {
    return fmt::format("the file is cut: it has {} bytes, the tensor's shard ends at {}", file_size,
                       shard.offset + shard.length);
  }
  const std::uint64_t end = shard.offset + shard.length;
  std::uint64_t at = shard.offset;
  for (const std::uint32_t saved : shard.crc32c) {
    const std::uint64_t until = std::min(at + shard.ChecksummedBytes(), end);
    const StatusOr<std::uint32_t> crc = ChecksumOf(fd, at, until, buffer);
    if (!crc.ok()) return crc.status().message();
    if (*crc != saved) {
      return fmt::format("its checksum is {:08x}, {:08x} was saved (bytes {} to {})", *crc, saved,
                         at, until);
    }
    at = until;
  }
  return "";
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

std::vector<Damage> VerifyFiles(const fs::path& directory, const ShardsByFile& files) {
  std::vector<const ShardsByFile::value_type*> work;
  for (const auto& file : files) work.push_back(&file);
  std::vector<std::vector<Damage>> found(work.size());
  std::atomic<std::size_t> next{0};
  const auto verify_next = [&] {
    for (std::size_t i = next++; i < work.size(); i = next++) {
      found[i] = VerifyShards(directory / work[i]->first, work[i]->second);
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
  for (std::vector<Damage>& of_file : found) {
    std::move(of_file.begin(), of_file.end(), std::back_inserter(damages));
  }
  return damages;
}

}  // namespace

std::string Describe(const Damage& damage) {
  if (damage.tensor.empty()) return fmt::format("{}: {}", damage.file, damage.reason);
  return fmt::format("{}: tensor '{}': {}", damage.file, damage.tensor, damage.reason);
}

std::vector<Damage> VerifyShards(const fs::path& path, std::vector<NamedShard> shards) {
  const std::string file = path.filename().string();
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    return {{file, "", ErrnoError(errno, "it cannot be opened").message()}};
  }
  if (!S_ISREG(info.st_mode)) return {{file, "", "it is not a regular file"}};
  std::sort(shards.begin(), shards.end(), [](const NamedShard& a, const NamedShard& b) {
    return a.shard.offset < b.shard.offset;
  });
  std::vector<Damage> damages;
  std::vector<std::byte> buffer(kReadBytes);
  for (const NamedShard& named : shards) {
    std::string problem =
        ShardProblem(fd.get(), static_cast<std::uint64_t>(info.st_size), named.shard, &buffer);
    if (!problem.empty()) damages.push_back({file, named.tensor, std::move(problem)});
  }
  return damages;
}

StatusOr<VerifyReport> VerifyCheckpoint(const fs::path& directory) {
  VerifyReport report;
  const StatusOr<Manifest> manifest = ReadManifest(directory);
  if (!manifest.ok()) {
    if (manifest.status().code() == StatusCode::kNotFound) return manifest.status();
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
                              fmt::format("it says step {}, the folder {}", manifest->step,
                                          directory.filename().string())});
  }
  std::vector<Damage> damages = VerifyFiles(directory, GroupByFile(*manifest));
  std::move(damages.begin(), damages.end(), std::back_inserter(report.damages));
  return report;
}

}  // namespace ds::checkpoint
