#pragma once

// SshConfig: an ssh_config that libssh reads as OpenSSH does. libssh looks for the file of a
// relative Include in the working directory, and goes on without it; OpenSSH looks beside the
// user's own configuration.
//
// Threads: a plain value; the files it holds live as long as it does.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class SshConfig {
 public:
  // The configuration at `path`, with all that it includes; `folder` is where relative names are
  // seen from. A file that is not there is an empty one, as for OpenSSH.
  static StatusOr<SshConfig> Read(const std::filesystem::path& path,
                                  const std::filesystem::path& folder);

  // The file for libssh to read: text without relative names.
  const std::string& path() const { return path_; }

 private:
  Status Add(const std::string& text, int depth, const std::filesystem::path& folder,
             std::string* path);
  StatusOr<std::string> IncludeLines(std::string_view patterns, int depth,
                                     const std::filesystem::path& folder);

  std::string path_;
  std::vector<UniqueFd> files_;
};

}  // namespace ds::cli
