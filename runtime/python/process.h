#pragma once

// Process: this Python process as a rank of a job: its world, which all engines share, and its link
// to dsrun, if that has started it.
//
// Threads: the thread that imports the package. No function needs the GIL.

#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/device/rank_device.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::python {

class Process {
 public:
  // Joins the job that the environment describes (RANK, WORLD_SIZE, ..., set by dsrun and by
  // torchrun), a world of one rank without it. Throws StatusError if ranks are missing or there is
  // no such device, and for a second call after a failed one.
  static void Join(device::DeviceChoice choice);
  static bool IsJoined();
  // The process's own. Requires Join.
  static Process& Get();
  // Leaves the job, at the end of the process: engines must have been destroyed.
  static void Leave();

  comm::Communicator& world() { return *world_; }
  const comm::RankIdentity& identity() const { return identity_; }
  const device::RankDevice& device() const { return device_; }
  rank::RankReporter& reporter() { return *reporter_; }

  // One engine of the process reports its steps: the first that asks while none does. It must stop
  // reporting before it is destroyed.
  bool IsReporter(const void* engine);
  void StopReporting(const void* engine);

  // Tells dsrun of an exception that is about to end the process. `is_consequence` says that
  // another rank was missing: dsrun blames that one's reason, then.
  static void ReportFailure(const std::string& text, bool is_consequence);

 private:
  explicit Process(device::DeviceChoice choice);
  static std::unique_ptr<Process>& Instance();

  comm::RankIdentity identity_;
  device::RankDevice device_;
  std::unique_ptr<rank::RankReporter> reporter_;
  std::unique_ptr<comm::Communicator> world_;
  const void* reporting_ = nullptr;
};

}  // namespace ds::python
