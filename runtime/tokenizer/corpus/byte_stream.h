#pragma once

// ByteStream: the bytes of a file from its begin to its end. A file in gzip's format is
// decompressed, by its first bytes and not by its name; a UTF-8 byte order mark is left out.
//
// Errors name the file. Threads: one.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

struct gzFile_s;

namespace ds::tokenizer {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
inline constexpr std::string_view kGzipStart = "\x1f\x8b";

class ByteStream {
 public:
  static StatusOr<ByteStream> Open(const std::filesystem::path& path);

  // Appends up to `most` bytes; false at the end of the file. A file that is cut off is an error.
  StatusOr<bool> ReadMore(std::size_t most, std::string* bytes);

  // Counts the bytes of the file, as it lies on the disk, that have been read.
  std::uint64_t position() const;

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  explicit ByteStream(std::filesystem::path path) : path_(std::move(path)) {}
  StatusOr<bool> Read(std::size_t most, std::string* bytes);

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::string begin_;  // read ahead to find a byte order mark
  bool has_begun_ = false;
};

}  // namespace ds::tokenizer
