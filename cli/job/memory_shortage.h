#pragma once

// CheckHostMemory and CheckNodeMemory look for a shortage before any rank starts: the ranks of a
// host would hold more memory than it has. Pure.

#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/verdict/verdict.h"
#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// Asks about one host's ranks. All outlive the question.
struct ShortageQuestion {
  const JobPlan& job;
  const Program& program;  // advises
  const JobHost& host;
  const v1::PrepareResponse& answer;
};

// Judges the host's ranks by JobPurpose::memory and the host's answer, which also says on what they
// compute. Good where they fit, or where one of both is not known.
JobOutcome CheckHostMemory(const ShortageQuestion& question);

// The same for ranks whose memory is bound to nodes of the host (MemoryPolicy), against all that
// these have. Requires that the ranks have been bound.
JobOutcome CheckNodeMemory(const ShortageQuestion& question);

}  // namespace ds::cli
