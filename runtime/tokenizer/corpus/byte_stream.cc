#include "runtime/tokenizer/corpus/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "runtime/base/files.h"

namespace ds::tokenizer {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 17;
constexpr std::size_t kMostAtOnce = std::size_t{1} << 20;  // decompressed bytes per call
constexpr int kGzipWindow = 15 + 16;                       // zlib's code for gzip's format

}  // namespace

struct ByteStream::Gzip {
  z_stream stream = {};
  bool at_end = false;  // at the end of a member
};

void ByteStream::Close::operator()(Gzip* gzip) const {
  ::inflateEnd(&gzip->stream);
  delete gzip;
}

StatusOr<ByteStream> ByteStream::Open(const std::filesystem::path& path) {
  UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return ErrnoError(errno, ShortenPath(path));
  ByteStream stream(path, std::move(opened));
  DS_RETURN_IF_ERROR(stream.FillRaw().status());
  if (!stream.raw_.starts_with(kGzipStart)) return stream;
  stream.gzip_.reset(new Gzip);
  if (::inflateInit2(&stream.gzip_->stream, kGzipWindow) != Z_OK) {
    return ResourceExhaustedError(ShortenPath(path) + ": no memory");
  }
  return stream;
}

// Returns false at the end of the file. Does nothing while unused bytes remain.
StatusOr<bool> ByteStream::FillRaw() {
  if (raw_at_ < raw_.size()) return true;
  raw_.resize(kBufferBytes);
  raw_at_ = 0;
  std::size_t size = 0;
  while (size < raw_.size()) {
    const ssize_t got = ::read(file_.get(), raw_.data() + size, raw_.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      raw_.clear();
      return ErrnoError(error, ShortenPath(path_));
    }
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  raw_.resize(size);
  raw_bytes_ += size;
  return size > 0;
}

// Skips zeros up to the beginning of another member; returns false at the end of the file.
StatusOr<bool> ByteStream::StartMember() {
  while (true) {
    DS_ASSIGN_OR_RETURN(const bool more, FillRaw());
    if (!more) return false;
    raw_at_ = std::min(raw_.find_first_not_of('\0', raw_at_), raw_.size());
    if (raw_at_ < raw_.size()) break;
  }
  if (raw_[raw_at_] != kGzipStart[0]) {
    return DataLossError(ShortenPath(path_) + ": at byte " + std::to_string(position()) +
                         " the compressed data ends and other data follows: fetch it again, or "
                         "unpack it first");
  }
  ::inflateReset(&gzip_->stream);
  gzip_->at_end = false;
  return true;
}

StatusOr<bool> ByteStream::Inflate(std::size_t most, std::string* bytes) {
  const std::size_t before = bytes->size();
  z_stream& stream = gzip_->stream;
  while (bytes->size() == before) {
    if (gzip_->at_end) {
      DS_ASSIGN_OR_RETURN(const bool more, StartMember());
      if (!more) return false;
    }
    DS_ASSIGN_OR_RETURN(const bool has_raw, FillRaw());
    bytes->resize(before + std::min(most, kMostAtOnce));
    stream.next_in = reinterpret_cast<Bytef*>(raw_.data() + raw_at_);
    stream.avail_in = static_cast<uInt>(raw_.size() - raw_at_);
    stream.next_out = reinterpret_cast<Bytef*>(bytes->data() + before);
    stream.avail_out = static_cast<uInt>(bytes->size() - before);
    const int code = ::inflate(&stream, Z_NO_FLUSH);
    raw_at_ = raw_.size() - stream.avail_in;
    bytes->resize(bytes->size() - stream.avail_out);
    gzip_->at_end = code == Z_STREAM_END;
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      return DataLossError(ShortenPath(path_) + ": the compressed data is damaged: " +
                           (stream.msg == nullptr ? "no memory" : stream.msg));
    }
    if (!has_raw && !gzip_->at_end && bytes->size() == before) {
      return DataLossError(ShortenPath(path_) +
                           ": the compressed data is truncated: the file is incomplete");
    }
  }
  return true;
}

StatusOr<bool> ByteStream::ReadSome(std::size_t most, std::string* bytes) {
  if (gzip_ != nullptr) return Inflate(most, bytes);
  DS_ASSIGN_OR_RETURN(const bool more, FillRaw());
  const std::size_t size = std::min(most, raw_.size() - raw_at_);
  bytes->append(raw_, raw_at_, size);
  raw_at_ += size;
  return more;
}

StatusOr<bool> ByteStream::Read(std::size_t most, std::string* bytes) {
  const std::size_t before = bytes->size();
  while (bytes->size() - before < most) {
    DS_ASSIGN_OR_RETURN(const bool more, ReadSome(most - (bytes->size() - before), bytes));
    if (!more) break;
  }
  return bytes->size() > before;
}

StatusOr<bool> ByteStream::ReadMore(std::size_t most, std::string* bytes) {
  if (!has_begun_) {
    has_begun_ = true;
    DS_RETURN_IF_ERROR(Read(kByteOrderMark.size(), &begin_).status());
    if (begin_ == kByteOrderMark) begin_.clear();
  }
  if (!begin_.empty()) {
    *bytes += begin_;
    begin_.clear();
    return true;
  }
  return Read(most, bytes);
}

std::uint64_t ByteStream::position() const { return raw_bytes_ - (raw_.size() - raw_at_); }

}  // namespace ds::tokenizer
