#pragma once

// HostKeys: whom we talk to. A host whose key the user's or the system's known_hosts hold must show
// that key. A host nobody knows is accepted once per job and its key kept in a file of the job;
// from then on it must show that one. There is no way to switch this off.
//
// Threads: all members from any thread.

#include <filesystem>
#include <mutex>
#include <string>

#include "cli/remote/ssh_session.h"

namespace ds::cli {

class HostKeys {
 public:
  // `job_file` is made when the first unknown host is accepted.
  explicit HostKeys(std::filesystem::path job_file) : job_file_(std::move(job_file)) {}

  // Between Connect and Authenticate.
  HostOutcome Check(const SshSession& session);

 private:
  const std::filesystem::path job_file_;
  std::mutex mutex_;  // of the file
};

}  // namespace ds::cli
