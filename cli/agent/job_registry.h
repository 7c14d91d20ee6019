#pragma once

// The job registry lists the jobs whose agents run on this machine and for this user, for
// `dsrun ps`. It is a folder of this user (0700) below $XDG_RUNTIME_DIR or /tmp, with one file per
// job that holds the path of its run folder. An entry proves nothing: the agent's address in the
// run folder does (agent_address.h).
//
// Thread-safe.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// Adds this user's job. A job without an entry runs all the same; `dsrun ps` does not list it.
Status RegisterJob(const std::string& job_id, const std::filesystem::path& run_directory);
void UnregisterJob(const std::string& job_id);

struct RegisteredJob {
  std::string job_id;
  std::filesystem::path run_directory;
};
// Returns the jobs in order of their ids; none if the folder does not exist. Removes the entries of
// agents that were killed.
StatusOr<std::vector<RegisteredJob>> ListRegisteredJobs();

}  // namespace ds::cli
