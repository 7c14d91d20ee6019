#pragma once

// JobRecord: what a job leaves in its run directory and shows its user, from the first notice to
// the verdict. Run directory first, console second: what is shown is already kept.
//
// Threads: OnNotice and ShowWarning from any; the rest one at a time.

#include <mutex>
#include <string>

#include "cli/console/console.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/run_directory.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/status.h"

namespace ds::cli {

class JobRecord : public JobObserver {
 public:
  // All outlive it.
  JobRecord(const JobPlan* plan, RunDirectory* run_directory, Console* console)
      : plan_(*plan), run_directory_(run_directory), console_(console) {}

  // Shows what is known before anything starts.
  void ShowNotices();

  void OnPrepared(const std::string& host, const v1::PrepareResponse& response) override;
  Status OnEvent(const HostEvent& event) override;
  void OnNotice(const std::string& text) override;
  void OnQuiet() override;

  void ShowWarning(const std::string& text);

  // Shows what the job has left, or why it failed. Returns the exit status of dsrun.
  int Conclude(const JobOutcome& outcome);

 private:
  void ShowSummary();

  const JobPlan& plan_;
  RunDirectory* const run_directory_;
  std::mutex mutex_;
  Console* const console_;  // guarded by mutex_
};

}  // namespace ds::cli
