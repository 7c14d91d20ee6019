#pragma once

// JobRecord: what a job leaves in its run directory and shows its user, from the first notice to
// the verdict. Run directory first, console second: what is shown is already kept. Once it has
// begun, the run directory is written on a thread of its own.
//
// Threads: OnNotice, ShowWarning, GiveUp and written from any; the rest one at a time.

#include <cstdint>
#include <mutex>
#include <string>

#include "cli/console/console.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/run_directory.h"
#include "cli/job/verdict/verdict.h"
#include "cli/session/task_thread.h"
#include "runtime/base/status.h"

namespace ds::cli {

class JobRecord : public JobObserver {
 public:
  // All outlive it.
  JobRecord(const JobPlan* plan, RunDirectory* run_directory, Console* console)
      : plan_(*plan),
        run_directory_(run_directory),
        console_(console),
        writer_([this] { OnQuiet(); }) {}

  // Has the thread from now on: throws std::system_error where the machine has none to give.
  void Begin() { writer_.Start(); }

  // Shows what is known before anything starts.
  void ShowNotices();

  void OnPrepared(const std::string& host, const v1::PrepareResponse& response) override;
  Status OnEvent(const HostEvent& event) override;
  void OnNotice(const std::string& text) override;

  void ShowWarning(const std::string& text);

  // Shows what the job has left, or why it failed. Returns the exit status of dsrun.
  int Conclude(JobOutcome outcome);

  // Nobody waits for the run directory any more: what it has not got of the ranks' output is lost.
  void GiveUp();
  // Waits for what is still being written, be it for ever; nothing is told later.
  void End() { writer_.End(); }
  // Has grown when something has been written since.
  std::uint64_t written() const { return writer_.done(); }

 private:
  void Write(const HostEvent& event);
  void OnQuiet();
  // Returns the verdict, as far as it gets, to be shown.
  Verdict WriteVerdict(const Verdict& verdict);
  void ShowSummary();

  const JobPlan& plan_;
  RunDirectory* const run_directory_;
  std::mutex mutex_;
  Console* const console_;  // guarded by mutex_, like all below
  Status failed_;           // the first that was not kept; nothing is kept behind it
  int generation_ = 0;      // of that one
  bool given_up_ = false;
  TaskThread writer_;  // last: it uses the rest
};

}  // namespace ds::cli
