#include "cli/commands/find_job.h"

#include <vector>

#include "cli/agent/job_registry.h"
#include "runtime/base/files.h"
#include "runtime/base/path_exists.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

StatusOr<fs::path> FindOnlyJob(const std::string& command) {
  DS_ASSIGN_OR_RETURN(const std::vector<RegisteredJob> jobs, ListRegisteredJobs());
  if (jobs.size() == 1) return jobs[0].run_directory;
  if (jobs.empty()) {
    return NotFoundError(command + ": no job of yours runs on this machine; name a run folder");
  }
  std::string names;
  for (const RegisteredJob& job : jobs) names += (names.empty() ? "" : ", ") + job.job_id;
  return InvalidArgumentError(command + ": several jobs run on this machine, name one: " + names);
}

StatusOr<bool> HoldsJob(const fs::path& folder) { return PathExists(folder / "job.json"); }

}  // namespace

StatusOr<fs::path> FindJob(const std::string& word, const std::string& command) {
  if (word.empty()) return FindOnlyJob(command);
  for (const fs::path& folder : {fs::path(word), fs::path("runs") / word}) {
    DS_ASSIGN_OR_RETURN(const bool found, HoldsJob(folder));
    if (found) return fs::absolute(folder).lexically_normal();
  }
  DS_ASSIGN_OR_RETURN(const std::vector<RegisteredJob> jobs, ListRegisteredJobs());
  for (const RegisteredJob& job : jobs) {
    if (job.job_id == word) return job.run_directory;
  }
  return NotFoundError(command + ": " + word +
                       " is neither a run folder nor a job that runs on this machine; `dsrun ps` "
                       "lists those");
}

}  // namespace ds::cli
