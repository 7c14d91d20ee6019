#include "cli/job/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

bool IsFull(int error) { return error == ENOSPC || error == EDQUOT; }

}  // namespace

fs::path NameRotated(const fs::path& log, int age) {
  return age == 0 ? log : fs::path(log.string() + "." + std::to_string(age));
}

int LogFile::Reopen() {
  file_.Reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.valid()) return errno;
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) return errno;
  size_ = static_cast<std::uint64_t>(info.st_size);
  return 0;
}

LogFile::Appended LogFile::Append(std::string_view text) {
  text.remove_prefix(std::min(appended_, text.size()));
  int error = file_.valid() ? 0 : Reopen();
  while (error == 0) {
    const bool is_limited = limit_.max_bytes > 0;
    if (is_limited && size_ > 0 && size_ + text.size() > limit_.max_bytes) error = Rotate();
    const std::string_view piece = is_limited ? text.substr(0, limit_.max_bytes) : text;
    if (error == 0) error = WriteOrUndo(piece);
    if (error != 0) break;
    appended_ = piece.size() < text.size() ? appended_ + piece.size() : 0;
    if (appended_ == 0) return {};
    text.remove_prefix(piece.size());
  }
  return {.status = ErrnoError(error, path_.string()), .is_full = IsFull(error)};
}

int LogFile::Rotate() {
  if (limit_.max_files == 1) {
    if (::ftruncate(file_.get(), 0) != 0) return errno;
    size_ = 0;
    return 0;
  }
  for (int age = limit_.max_files - 2; age >= 0; --age) {
    const fs::path from = NameRotated(path_, age), to = NameRotated(path_, age + 1);
    if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) return errno;
  }
  return Reopen();
}

int LogFile::WriteOrUndo(std::string_view text) {
  if (ledger_ != nullptr) ledger_->OnAppend(path_, size_);
  std::uint64_t written = 0;
  int error = 0;
  while (error == 0 && written < text.size()) {
    const ssize_t count = ::write(file_.get(), text.data() + written, text.size() - written);
    if (count >= 0) {
      written += static_cast<std::uint64_t>(count);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (error == 0) {
    size_ += written;
    return 0;
  }
  // A part of the text must not stand twice in the file when the caller repeats the call.
  if (written > 0 && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) return errno;
  return error;
}

}  // namespace ds::cli
