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

// Judges CPU ranks by JobPurpose::memory and the host's answer. None where they fit, or where one
// of both is not known. The verdict has the advice of `program`.
std::optional<Verdict> FindMemoryShortage(const JobPlan& job, const Program& program,
                                          const JobHost& host, const v1::PrepareResponse& answer);

}  // namespace ds::cli
