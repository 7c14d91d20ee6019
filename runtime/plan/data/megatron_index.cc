#include "runtime/plan/data/megatron_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "runtime/base/files.h"
#include "runtime/plan/data/index_format.h"

namespace ds::data {
namespace fs = std::filesystem;
namespace {

constexpr auto kHeaderBytes = static_cast<std::int64_t>(kIndexHeaderBytes);
constexpr std::int64_t kMost = std::int64_t{1} << 40;  // sequences; keeps products in range
constexpr std::int64_t kBatch = 65536;                 // numbers read at once

// Returns the bytes per token for the index's dtype code; 0 if the dtype is not an integer, or not
// one that Megatron uses for tokens.
constexpr std::array<std::int64_t, 9> kTokenBytes = {0, 1, 0, 2, 4, 8, 0, 0, 2};

Status Damaged(const fs::path& path, const std::string& what) {
  return DataLossError(ShortenPath(path) + ": " + what +
                       "; it is damaged, or not the index of the .bin file next to it");
}

}  // namespace

fs::path MegatronIndex::PathFor(const fs::path& bin) {
  return fs::path(bin).replace_extension(".idx");
}

template <typename Number>
StatusOr<std::vector<Number>> MegatronIndex::ReadNumbers(std::int64_t at,
                                                         std::int64_t count) const {
  std::vector<Number> numbers(static_cast<std::size_t>(count));
  auto* out = reinterpret_cast<char*>(numbers.data());
  std::size_t left = numbers.size() * sizeof(Number);
  while (left > 0) {
    const ssize_t got = ::pread(fd_.get(), out, left, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, ShortenPath(path_));
    if (got == 0) return Damaged(path_, "the file ends too early");
    out += got;
    at += got;
    left -= static_cast<std::size_t>(got);
  }
  return numbers;
}

StatusOr<MegatronIndex> MegatronIndex::Open(const fs::path& path, std::int64_t bin_bytes) {
  MegatronIndex index;
  index.path_ = path;
  index.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!index.fd_.valid()) return ErrnoError(errno, ShortenPath(path));
  DS_RETURN_IF_ERROR(index.ReadHeader());
  index.tokens_ = bin_bytes / index.token_bytes_;
  DS_RETURN_IF_ERROR(index.CheckSequences(bin_bytes));
  DS_RETURN_IF_ERROR(index.CheckDocuments());
  return index;
}

Status MegatronIndex::ReadHeader() {
  DS_ASSIGN_OR_RETURN(const std::vector<char> header, ReadNumbers<char>(0, kHeaderBytes));
  if (!std::string_view(header.data(), header.size()).starts_with(kIndexMagic)) {
    return Damaged(path_, "it does not begin as Megatron-LM's indices do");
  }
  const auto version = NumberAt<std::uint64_t>(&header[9]);
  if (version != 1) {
    return UnimplementedError(ShortenPath(path_) + ": version " + std::to_string(version) +
                              " of Megatron-LM's index is not read, only 1");
  }
  const auto dtype = static_cast<std::size_t>(NumberAt<std::uint8_t>(&header[17]));
  if (dtype >= kTokenBytes.size() || kTokenBytes[dtype] == 0) {
    return InvalidArgumentError(
        ShortenPath(path_) + ": dtype " + std::to_string(dtype) +
        " is none that token ids have (uint8, int16, uint16, int32, int64)");
  }
  token_bytes_ = kTokenBytes[dtype];
  const auto sequences = NumberAt<std::uint64_t>(&header[18]);
  const auto ends = NumberAt<std::uint64_t>(&header[26]);
  if (sequences > static_cast<std::uint64_t>(kMost) || ends < 1 || ends > sequences + 1) {
    return Damaged(path_, "it counts " + std::to_string(sequences) + " sequences and " +
                              std::to_string(ends) + " ends of documents");
  }
  sequences_ = static_cast<std::int64_t>(sequences);
  documents_ = static_cast<std::int64_t>(ends) - 1;
  lengths_at_ = kHeaderBytes;
  pointers_at_ = lengths_at_ + 4 * sequences_;
  documents_at_ = pointers_at_ + 8 * sequences_;
  return CheckSize();
}

Status MegatronIndex::CheckSize() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return ErrnoError(errno, ShortenPath(path_));
  const auto size = static_cast<std::int64_t>(info.st_size);
  const std::int64_t expected = documents_at_ + 8 * (documents_ + 1);
  if (size == expected + sequences_ && sequences_ > 0) {
    return UnimplementedError(ShortenPath(path_) +
                              ": it has a mode for every sequence, of a multimodal data set, which "
                              "is not read");
  }
  if (size == expected) return OkStatus();
  return Damaged(path_, "it has " + std::to_string(size) + " bytes, and its counts need " +
                            std::to_string(expected));
}

Status MegatronIndex::CheckSequences(std::int64_t bin_bytes) const {
  std::int64_t end = 0;
  for (std::int64_t first = 0; first < sequences_; first += kBatch) {
    const std::int64_t count = std::min(kBatch, sequences_ - first);
    DS_ASSIGN_OR_RETURN(const auto lengths,
                        ReadNumbers<std::int32_t>(lengths_at_ + 4 * first, count));
    DS_ASSIGN_OR_RETURN(const auto pointers,
                        ReadNumbers<std::int64_t>(pointers_at_ + 8 * first, count));
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::string name = "sequence " + std::to_string(first + static_cast<std::int64_t>(i));
      if (lengths[i] < 0) return Damaged(path_, name + " has less than no tokens");
      if (pointers[i] != end) {
        return Damaged(path_, name + " begins at byte " + std::to_string(pointers[i]) +
                                  ", and the one before it ends at " + std::to_string(end));
      }
      end += lengths[i] * token_bytes_;
    }
  }
  if (end == bin_bytes) return OkStatus();
  return Damaged(path_, "its sequences end at byte " + std::to_string(end) +
                            " of a .bin file that has " + std::to_string(bin_bytes));
}

Status MegatronIndex::CheckDocuments() const {
  std::int64_t before = 0;
  for (std::int64_t first = 0; first <= documents_; first += kBatch) {
    const std::int64_t count = std::min(kBatch, documents_ + 1 - first);
    DS_ASSIGN_OR_RETURN(const auto starts,
                        ReadNumbers<std::int64_t>(documents_at_ + 8 * first, count));
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const std::int64_t document = first + static_cast<std::int64_t>(i);
      const bool is_first_wrong = document == 0 && starts[i] != 0;
      if (is_first_wrong || starts[i] < before || starts[i] > sequences_) {
        return Damaged(path_, "document " + std::to_string(document) + " begins with sequence " +
                                  std::to_string(starts[i]) + " of " + std::to_string(sequences_));
      }
      before = starts[i];
    }
  }
  if (before == sequences_) return OkStatus();
  return Damaged(path_, "the last document ends before the last sequence");
}

StatusOr<std::vector<std::uint64_t>> MegatronIndex::ReadEnds(std::int64_t first,
                                                             std::int64_t count) const {
  DS_ASSIGN_OR_RETURN(const auto after,
                      ReadNumbers<std::int64_t>(documents_at_ + 8 * (first + 1), count));
  std::vector<std::uint64_t> ends;
  std::vector<std::int64_t> pointers;  // of sequences from `from` on
  std::int64_t from = 0;
  for (const std::int64_t sequence : after) {
    if (sequence == sequences_) {
      ends.push_back(static_cast<std::uint64_t>(tokens_));
      continue;
    }
    if (sequence >= from + std::ssize(pointers) || sequence < from) {
      from = sequence;
      const std::int64_t many = std::min(count, sequences_ - from);
      DS_ASSIGN_OR_RETURN(pointers, ReadNumbers<std::int64_t>(pointers_at_ + 8 * from, many));
    }
    const std::int64_t byte = pointers[static_cast<std::size_t>(sequence - from)];
    ends.push_back(static_cast<std::uint64_t>(byte / token_bytes_));
  }
  return ends;
}

}  // namespace ds::data
