#pragma once

// JobRecord writes a job to its run directory and publishes it to the fronts (front_server.h), from
// the first notice to the verdict. It writes to the run directory first, so that everything shown
// is also stored. After Begin, a separate thread writes the run directory.
//
// OnNotice, ShowWarning, OnStop, Describe, GiveUp and written are thread-safe; the other functions
// are not.

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "cli/agent/front_server.h"
#include "cli/agent/job_status.h"
#include "cli/agent/task_thread.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/run_directory.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/status.h"

namespace ds::cli {

class JobRecord : public JobObserver {
 public:
  // The arguments must outlive this object.
  JobRecord(const JobPlan* plan, RunDirectory* run_directory, FrontServer* fronts,
            WriteLedger* ledger)
      : plan_(*plan),
        run_directory_(run_directory),
        fronts_(fronts),
        ledger_(ledger),
        status_(*plan),
        writer_([this] { OnQuiet(); }) {}

  // Starts the thread. Throws std::system_error if the machine has no free thread.
  void Begin() {
    run_directory_->disk().Listen([this](const std::string& text) { OnNotice(text); });
    writer_.Start();
  }

  // Shows the notices of the plan, before anything starts.
  void ShowNotices();

  void OnPrepared(const std::string& host, const v1::PrepareResponse& response) override;
  Status OnEvent(const HostEvent& event) override;
  void OnNotice(const std::string& text) override;

  void ShowWarning(const std::string& text);

  // Records and publishes the job's results, or the reason for its failure. Returns the exit status
  // of dsrun.
  int Conclude(JobOutcome outcome);
  // Records that the ranks run already.
  void OnTakenOver();
  // Records that the user stops the job.
  void OnStop();
  // Returns the state of the job as JSON (job_status.h).
  std::string Describe() const;

  // Stops waiting for the run directory. Output of the ranks that is not written yet is lost.
  void GiveUp();
  // Blocks until all writes have finished, without a timeout; after GiveUp it waits for nothing. No
  // call may follow.
  void End();
  // Returns a counter of finished writes.
  std::uint64_t written() const { return writer_.done(); }

 private:
  void Write(const HostEvent& event);
  void OnQuiet();
  // Writes the verdict and returns the version to show.
  Verdict WriteVerdict(const Verdict& verdict);
  std::vector<std::string> Summarize() const;  // requires mutex_
  void Say(v1::JobText::Kind kind, const std::string& text);

  const JobPlan& plan_;
  RunDirectory* const run_directory_;
  FrontServer* const fronts_;
  WriteLedger* const ledger_;
  mutable std::mutex mutex_;
  JobStatus status_;    // guarded by mutex_, like all members below
  Status failed_;       // the first failed write; nothing is written after it
  int generation_ = 0;  // of the failed write
  bool given_up_ = false;
  TaskThread writer_;  // last, because it uses the other members
};

}  // namespace ds::cli
