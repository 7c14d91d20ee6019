#include "runtime/checkpoint_format/reading.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <span>
#include <system_error>

#include "runtime/base/unique_fd.h"

namespace ds::checkpoint {
namespace fs = std::filesystem;

bool ProvesAbsence(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case ENXIO:  // a socket
      return true;
    default:
      return false;
  }
}

Status ReadError(int error_number, std::string_view what) {
  Status status = ErrnoError(error_number, what);
  if (ProvesAbsence(error_number)) return NotFoundError(status.message());
  return UnavailableError(status.message());
}

StatusOr<std::string> ReadText(const fs::path& path, std::uint64_t max_bytes, FileSystem& system) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  const int opened = system.Open(path, O_RDONLY | O_NONBLOCK, 0);
  if (opened < 0) return ReadError(-opened, path.string());
  const UniqueFd fd(opened);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ReadError(errno, path.string());
  if (!S_ISREG(info.st_mode)) return DataLossError(path.string() + ": it is not a regular file");
  const Status too_large =
      DataLossError(path.string() + ": larger than " + std::to_string(max_bytes) + " bytes");
  // A sparse file may claim a size above the memory of the machine.
  if (static_cast<std::uint64_t>(info.st_size) > max_bytes) return too_large;
  std::string text;
  while (true) {
    const std::size_t size = text.size();
    if (size > max_bytes) return too_large;
    text.resize(size + kPiece);
    const ssize_t got = system.Read(fd.get(), std::as_writable_bytes(std::span(text).subspan(size)),
                                    static_cast<off_t>(size));
    if (got < 0) return ReadError(static_cast<int>(-got), path.string());
    text.resize(size + static_cast<std::size_t>(got));
    if (got == 0) return text;
  }
}

StatusOr<bool> Exists(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return true;
  if (ProvesAbsence(errno)) return false;
  return ReadError(errno, path.string());
}

}  // namespace ds::checkpoint
