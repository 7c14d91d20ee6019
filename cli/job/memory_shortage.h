#pragma once

// FindMemoryShortage: whether the ranks of a host will hold more memory than it has, before any of
// them starts. Pure.

#include <optional>

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
// compute. None where they fit, or where one of both is not known.
std::optional<Verdict> FindMemoryShortage(const ShortageQuestion& question);

// The same for ranks whose memory is bound to nodes of the host (MemoryPolicy), against all that
// these have. Requires that the ranks have been bound.
std::optional<Verdict> FindNodeShortage(const ShortageQuestion& question);

}  // namespace ds::cli
