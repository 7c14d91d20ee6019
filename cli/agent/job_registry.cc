#include "cli/agent/job_registry.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "cli/agent/agent_address.h"
#include "runtime/base/files.h"
#include "runtime/base/owner_mark.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivateFolder = 0700;
constexpr unsigned kPrivateFile = 0600;
constexpr std::uint64_t kMaxPathBytes = 4096;

fs::path RegistryFolder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && ::access(runtime, W_OK | X_OK) == 0) {
    return fs::path(runtime) / "dsrun-jobs";
  }
  return "/tmp/dsrun-jobs-" + std::to_string(::geteuid());
}

// A folder of another user, a link, or a folder that others may write lists anybody's jobs.
Status CheckFolder(const fs::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return ErrnoError(errno, folder.string());
  const bool is_private = S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
                          (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  if (is_private) return OkStatus();
  return PermissionDeniedError(folder.string() + " is not a private folder of this user");
}

// True if the job of an entry has no agent any more: it was killed before it could remove the
// entry.
bool IsGone(const RegisteredJob& job) {
  const StatusOr<AgentAddress> address = ReadAgentAddress(job.run_directory);
  if (!address.ok()) return address.status().code() == StatusCode::kNotFound;
  return IsOwnerGone(address->mark);
}

}  // namespace

Status RegisterJob(const std::string& job_id, const fs::path& run_directory) {
  const fs::path folder = RegistryFolder();
  for (;;) {
    if (::mkdir(folder.c_str(), kPrivateFolder) != 0 && errno != EEXIST) {
      return ErrnoError(errno, folder.string());
    }
    const Status checked = CheckFolder(folder);
    const Status written = checked.ok()
                               ? WriteFileAtomically(folder / job_id, run_directory.string(),
                                                     kPrivateFile, Durability::kAtomic)
                               : checked;
    // Another job's end may have removed the folder in between.
    if (written.code() != StatusCode::kNotFound) return written;
  }
}

void UnregisterJob(const std::string& job_id) {
  const fs::path folder = RegistryFolder();
  if (!CheckFolder(folder).ok()) return;
  ::unlink((folder / job_id).c_str());
  ::rmdir(folder.c_str());  // if it is empty
}

StatusOr<std::vector<RegisteredJob>> ListRegisteredJobs() {
  const fs::path folder = RegistryFolder();
  const Status checked = CheckFolder(folder);
  if (checked.code() == StatusCode::kNotFound) return std::vector<RegisteredJob>();
  if (!checked.ok()) return checked;
  std::vector<RegisteredJob> jobs;
  std::error_code error;
  for (fs::directory_iterator entries(folder, error), end; !error && entries != end;
       entries.increment(error)) {
    const StatusOr<std::string> path = ReadFile(entries->path(), kMaxPathBytes);
    // A job that ends in this moment removes its entry.
    if (path.status().code() == StatusCode::kNotFound) continue;
    if (!path.ok()) return path.status();
    RegisteredJob job{entries->path().filename().string(), *path};
    if (IsGone(job)) {
      ::unlink(entries->path().c_str());
    } else {
      jobs.push_back(std::move(job));
    }
  }
  if (error) return ErrnoError(error.value(), folder.string());
  std::sort(jobs.begin(), jobs.end(),
            [](const RegisteredJob& a, const RegisteredJob& b) { return a.job_id < b.job_id; });
  return jobs;
}

}  // namespace ds::cli
