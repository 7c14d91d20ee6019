#pragma once

// JobDirectory: the private folder (0700) that holds one generation's files (0600), removed with
// everything in it when the object goes.

#include <filesystem>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

class JobDirectory {
 public:
  // Makes `parent`/generation-N with `files` in it. A file's name may not hold a slash.
  static StatusOr<JobDirectory> Create(const std::filesystem::path& parent,
                                       const v1::LaunchRequest& request);

  JobDirectory(JobDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  JobDirectory& operator=(JobDirectory&&) = delete;
  ~JobDirectory();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit JobDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

}  // namespace ds::daemon
