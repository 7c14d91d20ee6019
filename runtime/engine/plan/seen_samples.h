#pragma once

// AtFirstStep and AtMost: a job whose steps see more and more of their samples (JobShape::
// efficiency), as if all of them saw what the first one does, or the most that any does. Pure.

#include "runtime/engine/plan/job_memory.h"

namespace ds::engine {

JobShape AtFirstStep(JobShape job);
JobShape AtMost(JobShape job);

}  // namespace ds::engine
