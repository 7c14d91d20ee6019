#pragma once

// InspectHosts starts a daemon on every host of a plan, asks each for the facts of its host, and
// releases them. All hosts are asked in parallel; one that cannot be reached stops no other.
//
// SIGINT, SIGTERM and SIGHUP end it: the daemons are released. The second one kills the daemons of
// this machine and ends this process. Call it once, before this process has other threads.

#include <functional>
#include <string>
#include <vector>

#include "cli/job/job_plan.h"
#include "cli/remote/host_failure.h"
#include "cli/report/host_report.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct InspectedHosts {
  std::vector<HostReport> hosts;   // those that answered, in the order of the plan
  std::vector<FailedHost> failed;  // the others
};

struct InspectionCallbacks {
  std::function<void(const std::string&)> notice;   // the progress
  std::function<void(const InspectedHosts&)> show;  // before the daemons of this machine have ended
};

// `python` is an interpreter to ask for its version; "" = none. Returns the signal with which the
// user has ended the inspection, or 0. An error means that this machine is at fault.
StatusOr<int> InspectHosts(const JobPlan& plan, const std::string& python,
                           const InspectionCallbacks& callbacks);

}  // namespace ds::cli
