#pragma once

// FuseMount: a folder that a file system of the tests' own serves from another one, through the
// kernel's FUSE: what a checkpoint sees of NFS or sshfs. It answers some calls as those do.
//
// For a child of the test: it gives the calling process a mount namespace of its own, so that the
// mount ends with this process and the one that serves it, however they end; that one dies with
// this. Requires a process with one thread.

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace ds::testing {

struct FuseAnswers {
  bool rename_flags = true;  // false: EINVAL to renameat2 with any
  bool locks = true;         // false: ENOLCK to flock
  int reads = -1;            // so many of files work, and then EIO; -1: all
};

class FuseMount {
 public:
  // Serves `backing` at `mount_point`; both exist.
  FuseMount(const std::filesystem::path& backing, const std::filesystem::path& mount_point,
            const FuseAnswers& answers);
  ~FuseMount();
  FuseMount(const FuseMount&) = delete;
  FuseMount& operator=(const FuseMount&) = delete;

  // Says why nothing is mounted, or "".
  const std::string& why_not() const { return why_not_; }
  // From now on no call to the file system returns, as on a file server that hangs: a signal can
  // end the process that waits for it. Thaw ends that.
  void Freeze() const;
  void Thaw() const;

 private:
  const std::filesystem::path mount_point_;
  std::string why_not_;
  pid_t server_ = -1;
};

}  // namespace ds::testing
