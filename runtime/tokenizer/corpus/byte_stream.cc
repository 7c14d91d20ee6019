#include "runtime/tokenizer/corpus/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"

namespace ds::tokenizer {
namespace {

constexpr unsigned kBufferBytes = 1U << 17;
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // gzread's count is an int

}  // namespace

void ByteStream::Close::operator()(gzFile_s* file) const { ::gzclose_r(file); }

StatusOr<ByteStream> ByteStream::Open(const std::filesystem::path& path) {
  UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return ErrnoError(errno, ShortenPath(path));
  ByteStream stream(path);
  stream.file_.reset(::gzdopen(opened.get(), "rb"));
  if (stream.file_ == nullptr) return ResourceExhaustedError(ShortenPath(path) + ": no memory");
  opened.Release();
  ::gzbuffer(stream.file_.get(), kBufferBytes);
  return stream;
}

StatusOr<bool> ByteStream::Read(std::size_t most, std::string* bytes) {
  const std::size_t before = bytes->size();
  bytes->resize(before + most);
  const int got = ::gzread(file_.get(), bytes->data() + before, static_cast<unsigned>(most));
  bytes->resize(before + static_cast<std::size_t>(std::max(got, 0)));
  int code = Z_OK;
  const char* const message = ::gzerror(file_.get(), &code);
  if (code == Z_ERRNO) return ErrnoError(errno, ShortenPath(path_));
  if (code != Z_OK && code != Z_STREAM_END) {
    return DataLossError(ShortenPath(path_) + ": the compressed data is " +
                         (code == Z_BUF_ERROR ? "cut off: the file is not whole"
                                              : "damaged: " + std::string(message)));
  }
  return got > 0;
}

StatusOr<bool> ByteStream::ReadMore(std::size_t most, std::string* bytes) {
  most = std::min(most, kMostAtOnce);
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

std::uint64_t ByteStream::position() const {
  const auto offset = ::gzoffset(file_.get());
  return offset < 0 ? 0 : static_cast<std::uint64_t>(offset);
}

}  // namespace ds::tokenizer
