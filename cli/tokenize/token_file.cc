#include "cli/tokenize/token_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/files.h"

namespace ds::cli {
namespace fs = std::filesystem;

StatusOr<TokenFile> TokenFile::Create(const fs::path& path, int id_bytes) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return ErrnoError(EISDIR, ShortenPath(path));
  const fs::path temporary = path.string() + ".tmp-" + std::to_string(::getpid());
  UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) return ErrnoError(errno, ShortenPath(path));
  return TokenFile(path, temporary, std::move(file), id_bytes);
}

TokenFile::TokenFile(fs::path path, fs::path temporary, UniqueFd file, int id_bytes)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      file_(std::move(file)),
      id_bytes_(id_bytes) {}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)),
      id_bytes_(other.id_bytes_),
      buffer_(std::move(other.buffer_)),
      count_(other.count_) {}

TokenFile::~TokenFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status TokenFile::Append(std::span<const std::uint32_t> ids) {
  buffer_.clear();
  for (std::uint32_t id : ids) {
    if (id_bytes_ == 2 && id > 0xFFFF) {
      return InvalidArgumentError("id " + std::to_string(id) +
                                  " has no room in 16 bits: give --token_dtype uint32");
    }
    for (int i = 0; i < id_bytes_; ++i, id >>= 8) buffer_ += static_cast<char>(id & 0xFF);
  }
  count_ += ids.size();
  return WriteAll(file_.get(), buffer_, ShortenPath(path_));
}

Status TokenFile::Commit() {
  if (::fsync(file_.get()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoError(errno, ShortenPath(path_));
  }
  temporary_.clear();
  return SyncDirectory(path_.has_parent_path() ? path_.parent_path() : ".");
}

}  // namespace ds::cli
