#include "runtime/plan/data/document_index.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"

namespace ds::data {
namespace {

constexpr std::int64_t kBlock = 1024;

StatusOr<std::vector<std::uint64_t>> ReadFileOfEnds(int fd, const std::string& name,
                                                    std::int64_t first, std::int64_t count) {
  std::vector<std::uint64_t> ends(static_cast<std::size_t>(count));
  const std::size_t bytes = ends.size() * sizeof(ends[0]);
  const auto offset = static_cast<off_t>(first) * static_cast<off_t>(sizeof(ends[0]));
  ssize_t got = 0;
  do {
    got = ::pread(fd, ends.data(), bytes, offset);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return ErrnoError(errno, name);
  if (static_cast<std::size_t>(got) == bytes) return ends;
  return DataLossError(name + ": the file is shorter than its documents");
}

}  // namespace

StatusOr<DocumentIndex> DocumentIndex::Open(const std::filesystem::path& path, std::int64_t count) {
  const auto fd = std::make_shared<UniqueFd>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd->valid()) return ErrnoError(errno, ShortenPath(path));
  return Create(ShortenPath(path), count,
                [fd, name = ShortenPath(path)](std::int64_t first, std::int64_t many) {
                  return ReadFileOfEnds(fd->get(), name, first, many);
                });
}

StatusOr<DocumentIndex> DocumentIndex::Create(std::string name, std::int64_t count, ReadEnds read) {
  DocumentIndex index;
  index.name_ = std::move(name);
  index.read_ = std::move(read);
  index.count_ = count;
  for (std::int64_t block = 0; block * kBlock < count; ++block) {
    DS_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> ends, index.ReadBlock(block));
    index.last_ends_.push_back(ends.back());
  }
  return index;
}

StatusOr<std::vector<std::uint64_t>> DocumentIndex::ReadBlock(std::int64_t block) const {
  return read_(block * kBlock, std::min(kBlock, count_ - block * kBlock));
}

Status DocumentIndex::ForEachEnd(const std::function<void(std::int64_t end)>& visit) const {
  for (std::int64_t block = 0; block * kBlock < count_; ++block) {
    DS_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> ends, ReadBlock(block));
    for (const std::uint64_t end : ends) visit(static_cast<std::int64_t>(end));
  }
  return OkStatus();
}

Status DocumentIndex::Number(std::int64_t first, std::span<std::int64_t> numbers) const {
  auto token = static_cast<std::uint64_t>(first);
  std::int64_t block =
      std::upper_bound(last_ends_.begin(), last_ends_.end(), token) - last_ends_.begin();
  std::int64_t number = 0;
  std::size_t at = 0;
  while (at < numbers.size()) {
    if (block * kBlock >= count_) {
      return DataLossError(name_ + ": token " + std::to_string(token) + " is of no document");
    }
    DS_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> ends, ReadBlock(block++));
    for (auto end = std::upper_bound(ends.begin(), ends.end(), token);
         end != ends.end() && at < numbers.size(); ++end) {
      if (*end <= token) continue;  // of a document without tokens
      for (; token < *end && at < numbers.size(); ++token) numbers[at++] = number;
      ++number;
    }
  }
  return OkStatus();
}

}  // namespace ds::data
