#pragma once

// CheckHostMemory and CheckNodeMemory detect, before any rank starts, that the ranks of a host
// would use more memory than it has. Pure.

#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/verdict/verdict.h"
#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// The input of the checks, for the ranks of one host. All references must be valid during the call.
struct ShortageQuestion {
  const JobPlan& job;
  const Program& program;  // gives advice on the remedy
  const JobHost& host;
  const v1::PrepareResponse& answer;
};

// Compares JobPurpose::memory of the host's ranks with the host's response, which also reports
// their device. Success if they fit, or if one of the two numbers is unknown.
JobOutcome CheckHostMemory(const ShortageQuestion& question);

// Does the same for ranks with memory bound to nodes of the host (MemoryPolicy), against the total
// memory of these nodes. Requires that the ranks have been bound.
JobOutcome CheckNodeMemory(const ShortageQuestion& question);

}  // namespace ds::cli
