#pragma once

// ReadOnce reads files that all hosts need, each of them once in a job, and keeps a T made of their
// text. The first thread that asks for a file reads it, and the others wait for it; other files can
// be read meanwhile. A file may hang, so name the call first (host_attempt.h).
//
// Thread-safe.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/status.h"

namespace ds::cli {

template <typename T>
class ReadOnce {
 public:
  // A longer file is an error.
  explicit ReadOnce(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns what the file holds. It is valid as long as this object. kNotFound only if the file
  // does not exist; every other failure to read it is another error.
  StatusOr<const T*> Get(const std::string& path) {
    File* file = nullptr;
    {
      const std::lock_guard lock(mutex_);
      std::unique_ptr<File>& entry = files_[path];
      if (entry == nullptr) entry = std::make_unique<File>();
      file = entry.get();
    }
    std::call_once(file->read, [&] {
      StatusOr<std::string> text = ReadFile(path, max_bytes_);
      file->status = text.status();
      if (text.ok()) file->content.emplace(std::move(text).value());
    });
    if (!file->status.ok()) return file->status;
    return &*file->content;
  }

 private:
  struct File {
    std::once_flag read;
    Status status;
    std::optional<T> content;  // if status is ok
  };

  const std::uint64_t max_bytes_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<File>> files_;  // guarded by mutex_; by path
};

}  // namespace ds::cli
