#pragma once

// A FileSystem whose calls a test answers: with an errno in place of the system, or by pretending
// that the call has worked.
//
// Threads: calls from several threads are numbered in the order in which they come.

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "runtime/base/file_system.h"

namespace ds::testing {

struct FileCall {
  enum class Kind {
    kOpen,
    kMakeDirectory,
    kWrite,
    kRead,
    kAllocate,
    kSync,
    kRename,
    kUnlink,
    kLock,
    kClose
  };
  Kind kind = Kind::kOpen;
  std::string path;    // the new name of a rename
  unsigned flags = 0;  // of a rename or an open
  int number = 0;      // among all calls, from 0
};

// A script answers a call with an errno or with one of these.
inline constexpr int kAskTheSystem = 0;
inline constexpr int kPretend = -1;

class ScriptedFileSystem : public FileSystem {
 public:
  using Script = std::function<int(const FileCall&)>;
  explicit ScriptedFileSystem(Script script) : script_(std::move(script)) {}

  int calls() const { return calls_; }

  int Open(const std::filesystem::path& path, int flags, mode_t mode) override;
  int MakeDirectory(const std::filesystem::path& path) override;
  // A write that fails has written half.
  ssize_t Write(int fd, std::span<const std::byte> bytes, off_t offset) override;
  ssize_t Read(int fd, std::span<std::byte> bytes, off_t offset) override;
  int Allocate(int fd, off_t offset, off_t length) override;
  int Sync(int fd) override;
  int Rename(const std::filesystem::path& from, const std::filesystem::path& to,
             unsigned flags) override;
  int Unlink(const std::filesystem::path& path, int flags) override;
  int Lock(int fd, int operation) override;
  int Close(int fd) override;

 private:
  int Ask(FileCall call);
  int AskAbout(FileCall::Kind kind, int fd);

  const Script script_;
  std::mutex mutex_;
  int calls_ = 0;
  std::map<int, std::string> paths_;  // of open descriptors
};

}  // namespace ds::testing
