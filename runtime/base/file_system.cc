#include "runtime/base/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace ds {
namespace {

template <typename Call>
auto RepeatInterrupted(Call call) -> decltype(call()) {
  while (true) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return -errno;
  }
}

}  // namespace

FileSystem& FileSystem::System() {
  static FileSystem system;
  return system;
}

int FileSystem::Open(const std::filesystem::path& path, int flags, mode_t mode) {
  return RepeatInterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
}

int FileSystem::MakeDirectory(const std::filesystem::path& path) {
  return RepeatInterrupted([&] { return ::mkdir(path.c_str(), 0777); });
}

ssize_t FileSystem::Write(int fd, std::span<const std::byte> bytes, off_t offset) {
  return RepeatInterrupted([&] { return ::pwrite(fd, bytes.data(), bytes.size(), offset); });
}

ssize_t FileSystem::Read(int fd, std::span<std::byte> bytes, off_t offset) {
  return RepeatInterrupted([&] { return ::pread(fd, bytes.data(), bytes.size(), offset); });
}

int FileSystem::Allocate(int fd, off_t offset, off_t length) {
  return RepeatInterrupted([&] { return ::fallocate(fd, 0, offset, length); });
}

int FileSystem::Sync(int fd) {
  return RepeatInterrupted([&] { return ::fsync(fd); });
}

int FileSystem::Rename(const std::filesystem::path& from, const std::filesystem::path& to,
                       unsigned flags) {
  return RepeatInterrupted(
      [&] { return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags); });
}

int FileSystem::Unlink(const std::filesystem::path& path, int flags) {
  return RepeatInterrupted([&] { return ::unlinkat(AT_FDCWD, path.c_str(), flags); });
}

int FileSystem::Lock(int fd, int operation) {
  return RepeatInterrupted([&] { return ::flock(fd, operation); });
}

int FileSystem::Close(int fd) {
  // On Linux close() has released the descriptor even when it returns EINTR. Retrying could close a
  // descriptor of another thread.
  return ::close(fd) == 0 || errno == EINTR ? 0 : -errno;
}

}  // namespace ds
