#include "runtime/data/token_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/data/data_files.h"

namespace ds::data {
namespace fs = std::filesystem;
namespace {

// Beyond these a file is opened for every read.
constexpr std::size_t kMaxOpenFiles = 128;

static_assert(std::endian::native == std::endian::little, ".bin token files are little-endian");

template <typename Id>
void Widen(const char* bytes, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Id id;
    std::memcpy(&id, bytes + i * sizeof(Id), sizeof(Id));
    out[i] = static_cast<std::int64_t>(id);
  }
}

Status ReadAt(int fd, const fs::path& path, std::int64_t offset, std::span<char> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, path.string());
    if (got == 0) {
      return DataLossError(path.string() + ": the file shrank while it was used; byte " +
                           std::to_string(offset) + " is gone");
    }
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return OkStatus();
}

}  // namespace

StatusOr<TokenWidth> ParseTokenDtype(const std::string& name) {
  if (name == "uint16") return TokenWidth::kUint16;
  if (name == "uint32") return TokenWidth::kUint32;
  return InvalidArgumentError("token dtype '" + name + "' is not supported; use uint16 or uint32");
}

StatusOr<TokenSource> TokenSource::Open(const std::vector<std::string>& paths,
                                        TokenWidth bin_width) {
  DS_ASSIGN_OR_RETURN(const std::vector<fs::path> files, ListDataFiles(paths));
  TokenSource source;
  for (const fs::path& file : files) DS_RETURN_IF_ERROR(source.Add(file, bin_width));
  if (source.size_ > 0) return source;
  std::string names;
  for (const std::string& path : paths) names += (names.empty() ? "" : ", ") + path;
  return InvalidArgumentError("the data is empty: " + (names.empty() ? "no paths" : names));
}

Status TokenSource::Add(const fs::path& path, TokenWidth bin_width) {
  Segment segment;
  segment.path = path;
  segment.width = path.extension() == ".bin" ? bin_width : TokenWidth::kByte;
  segment.first = size_;
  segment.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!segment.fd.valid() || ::fstat(segment.fd.get(), &info) != 0) {
    return ErrnoError(errno, path.string());
  }
  if (!S_ISREG(info.st_mode)) return InvalidArgumentError(path.string() + ": not a regular file");
  auto bytes = static_cast<std::int64_t>(info.st_size);
  if (path.extension() == ".jsonl") {
    DS_ASSIGN_OR_RETURN(segment.text, ReadJsonlTexts(path));
    segment.fd.Reset();
    bytes = static_cast<std::int64_t>(segment.text.size());
  }
  const auto width = static_cast<std::int64_t>(segment.width);
  if (bytes % width != 0) {
    return InvalidArgumentError(path.string() + ": " + std::to_string(bytes) +
                                " bytes are no whole number of " + std::to_string(width) +
                                "-byte tokens; is --token_dtype right?");
  }
  segment.count = bytes / width;
  if (segment.count == 0) return OkStatus();
  if (!segments_.empty() && segments_.front().width != segment.width) {
    return InvalidArgumentError("byte text and .bin tokens cannot be mixed: " +
                                segments_.front().path.string() + " and " + path.string());
  }
  if (segments_.size() >= kMaxOpenFiles) segment.fd.Reset();
  size_ += segment.count;
  segments_.push_back(std::move(segment));
  return OkStatus();
}

const TokenSource::Segment& TokenSource::SegmentAt(std::int64_t position) const {
  DS_CHECK(position >= 0 && position < size_);
  const auto after =
      std::upper_bound(segments_.begin(), segments_.end(), position,
                       [](std::int64_t p, const Segment& segment) { return p < segment.first; });
  return *std::prev(after);
}

Status TokenSource::Read(std::int64_t first, std::span<std::int64_t> out) const {
  while (!out.empty()) {
    const Segment& segment = SegmentAt(first);
    const std::int64_t from = first - segment.first;
    const auto count = std::min(static_cast<std::size_t>(segment.count - from), out.size());
    DS_RETURN_IF_ERROR(ReadSegment(segment, from, out.first(count)));
    first += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
  return OkStatus();
}

Status TokenSource::ReadSegment(const Segment& segment, std::int64_t from,
                                std::span<std::int64_t> out) {
  const auto width = static_cast<std::int64_t>(segment.width);
  if (!segment.text.empty()) {
    Widen<std::uint8_t>(segment.text.data() + from, out);
    return OkStatus();
  }
  UniqueFd opened;
  if (!segment.fd.valid()) {
    opened = UniqueFd(::open(segment.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened.valid()) return ErrnoError(errno, segment.path.string());
  }
  const int fd = opened.valid() ? opened.get() : segment.fd.get();
  std::vector<char> bytes(out.size() * static_cast<std::size_t>(width));
  DS_RETURN_IF_ERROR(ReadAt(fd, segment.path, from * width, bytes));
  switch (segment.width) {
    case TokenWidth::kByte:
      Widen<std::uint8_t>(bytes.data(), out);
      break;
    case TokenWidth::kUint16:
      Widen<std::uint16_t>(bytes.data(), out);
      break;
    case TokenWidth::kUint32:
      Widen<std::uint32_t>(bytes.data(), out);
      break;
  }
  return OkStatus();
}

std::string TokenSource::Where(std::int64_t position) const {
  const Segment& segment = SegmentAt(position);
  const std::int64_t token = position - segment.first;
  return segment.path.string() + ", token " + std::to_string(token) + " (byte " +
         std::to_string(token * static_cast<std::int64_t>(segment.width)) + ")";
}

}  // namespace ds::data
