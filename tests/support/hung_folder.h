#pragma once

// HungFolder is a folder on a file system that does not answer, like a file server that is gone.
// Whoever looks at a file in it waits until the folder is destroyed, or is killed. Needs root.
//
// Not thread-safe.

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "runtime/base/unique_fd.h"
#include "tests/support/program.h"

namespace ds::testing {

class HungFolder {
 public:
  HungFolder() {
    if (::geteuid() != 0) {
      why_not_ = "only root can mount a file system";
      return;
    }
    server_.Reset(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    const std::string options =
        "fd=" + std::to_string(server_.get()) + ",rootmode=40000,user_id=0,group_id=0";
    // Nobody reads the requests from the descriptor.
    if (::mount("none", path().c_str(), "fuse", 0, options.c_str()) != 0) {
      why_not_ = std::string("fuse: ") + std::strerror(errno);
    }
  }
  ~HungFolder() {
    server_.Reset();  // those who wait get an error
    if (why_not_.empty()) ::umount2(path().c_str(), MNT_DETACH);
  }
  HungFolder(const HungFolder&) = delete;
  HungFolder& operator=(const HungFolder&) = delete;

  // Returns the reason why there is no such folder here; "" if there is one.
  const std::string& why_not() const { return why_not_; }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  const TemporaryFolder folder_;
  UniqueFd server_;
  std::string why_not_;
};

}  // namespace ds::testing
