#pragma once

// Process: this Python process as a rank of a job: its world, which all engines share, and its link
// to dsrun, if that has started it.
//
// Threads: the thread that imports the package. No function needs the GIL.

#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::python {

class Process {
 public:
  // The process's own. Joins the job that the environment describes (RANK, WORLD_SIZE, ..., set by
  // dsrun and by torchrun) when first called; a world of one rank without it. Throws StatusError if
  // ranks are missing, and for a second call after a failed one.
  static Process& Get();
  // Returns whether Get has been called.
  static bool IsJoined();
  // Leaves the job, at the end of the process: engines must have been destroyed.
  static void Leave();

  comm::Communicator& world() { return *world_; }
  const comm::RankIdentity& identity() const { return identity_; }
  rank::RankReporter& reporter() { return *reporter_; }

  // Tells dsrun of an exception that is about to end the process.
  static void ReportFailure(const std::string& text);

 private:
  Process();
  static std::unique_ptr<Process>& Instance();

  comm::RankIdentity identity_;
  std::unique_ptr<rank::RankReporter> reporter_;
  std::unique_ptr<comm::Communicator> world_;
};

}  // namespace ds::python
