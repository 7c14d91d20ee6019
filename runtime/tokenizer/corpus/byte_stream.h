#pragma once

// ByteStream reads the bytes of a file from beginning to end. A gzip file is decompressed; it is
// recognized by its first bytes, not by its name. A UTF-8 byte order mark is skipped. After a
// member of a gzip file only another member or zeros may follow, as in Python's gzip.
//
// Errors name the file. Not thread-safe.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::tokenizer {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
inline constexpr std::string_view kGzipStart = "\x1f\x8b";

class ByteStream {
 public:
  static StatusOr<ByteStream> Open(const std::filesystem::path& path);

  // Appends up to `most` bytes; returns false at the end of the file. A truncated file is an error.
  StatusOr<bool> ReadMore(std::size_t most, std::string* bytes);

  // Returns the number of bytes read from the file on disk, before decompression.
  std::uint64_t position() const;

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Gzip;
  struct Close {
    void operator()(Gzip* gzip) const;
  };
  ByteStream(std::filesystem::path path, UniqueFd file)
      : path_(std::move(path)), file_(std::move(file)) {}
  StatusOr<bool> Read(std::size_t most, std::string* bytes);
  StatusOr<bool> ReadSome(std::size_t most, std::string* bytes);
  StatusOr<bool> Inflate(std::size_t most, std::string* bytes);
  StatusOr<bool> StartMember();
  StatusOr<bool> FillRaw();

  std::filesystem::path path_;
  UniqueFd file_;
  std::string raw_;  // bytes of the file; those from raw_at_ on are unused
  std::size_t raw_at_ = 0;
  std::uint64_t raw_bytes_ = 0;        // read from the file so far
  std::unique_ptr<Gzip, Close> gzip_;  // null for other files
  std::string begin_;                  // read ahead to find a byte order mark
  bool has_begun_ = false;
};

}  // namespace ds::tokenizer
