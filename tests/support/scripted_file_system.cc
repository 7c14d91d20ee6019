#include "tests/support/scripted_file_system.h"

#include <cerrno>

namespace ds::testing {

using Kind = FileCall::Kind;

int ScriptedFileSystem::Ask(FileCall call) {
  const std::lock_guard lock(mutex_);
  call.number = calls_++;
  return script_(call);
}

int ScriptedFileSystem::AskAbout(Kind kind, int fd) {
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    path = paths_[fd];
  }
  return Ask({.kind = kind, .path = std::move(path)});
}

int ScriptedFileSystem::Open(const std::filesystem::path& path, int flags, mode_t mode) {
  const FileCall call{
      .kind = Kind::kOpen, .path = path.string(), .flags = static_cast<unsigned>(flags)};
  if (const int error = Ask(call); error > 0) return -error;
  const int fd = FileSystem::Open(path, flags, mode);
  const std::lock_guard lock(mutex_);
  if (fd >= 0) paths_[fd] = path.string();
  return fd;
}

int ScriptedFileSystem::MakeDirectory(const std::filesystem::path& path) {
  const int error = Ask({.kind = Kind::kMakeDirectory, .path = path.string()});
  return error == kAskTheSystem ? FileSystem::MakeDirectory(path) : -error;
}

ssize_t ScriptedFileSystem::Write(int fd, std::span<const std::byte> bytes, off_t offset) {
  const int error = AskAbout(Kind::kWrite, fd);
  if (error == kPretend) return static_cast<ssize_t>(bytes.size());
  if (error == kAskTheSystem) return FileSystem::Write(fd, bytes, offset);
  FileSystem::Write(fd, bytes.first(bytes.size() / 2), offset);
  return -error;
}

ssize_t ScriptedFileSystem::Read(int fd, std::span<std::byte> bytes, off_t offset) {
  const int error = AskAbout(Kind::kRead, fd);
  return error == kAskTheSystem ? FileSystem::Read(fd, bytes, offset) : -error;
}

int ScriptedFileSystem::Allocate(int fd, off_t offset, off_t length) {
  const int error = AskAbout(Kind::kAllocate, fd);
  return error == kAskTheSystem ? FileSystem::Allocate(fd, offset, length) : -error;
}

int ScriptedFileSystem::Sync(int fd) {
  const int error = AskAbout(Kind::kSync, fd);
  if (error == kPretend) return 0;
  return error == kAskTheSystem ? FileSystem::Sync(fd) : -error;
}

int ScriptedFileSystem::Rename(const std::filesystem::path& from, const std::filesystem::path& to,
                               unsigned flags) {
  const int error = Ask({.kind = Kind::kRename, .path = to.string(), .flags = flags});
  return error == kAskTheSystem ? FileSystem::Rename(from, to, flags) : -error;
}

int ScriptedFileSystem::Unlink(const std::filesystem::path& path, int flags) {
  const int error = Ask({.kind = Kind::kUnlink, .path = path.string()});
  return error == kAskTheSystem ? FileSystem::Unlink(path, flags) : -error;
}

int ScriptedFileSystem::Lock(int fd, int operation) {
  const int error = AskAbout(Kind::kLock, fd);
  if (error == kPretend) return 0;
  return error == kAskTheSystem ? FileSystem::Lock(fd, operation) : -error;
}

// A descriptor whose close() reports an error is closed all the same.
int ScriptedFileSystem::Close(int fd) {
  const int error = AskAbout(Kind::kClose, fd);
  const int closed = FileSystem::Close(fd);
  return error == kAskTheSystem ? closed : -error;
}

}  // namespace ds::testing
