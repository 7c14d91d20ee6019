#pragma once

// These functions check a training by its config and its numbers of ranks alone. The engine calls
// them when it is built, dsrun calls them before it starts ranks.
//
// Pure. Thread-safe.

#include <string>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::engine {

struct EngineSetting {
  // EngineOptions::non_finite is NonFinitePolicy::kSkip.
  bool skips_non_finite = false;
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;  // per stage
};

// Refuses unsupported combinations: features that update in the backward pass or need the full
// model, together with ranks that hold parts of it; and micro-batches that the pipeline schedule
// does not accept.
Status CheckEngineRules(const config::DsConfig& config, const EngineSetting& setting);

// Refuses `what`, a feature that needs the full model, if ranks hold parts of it.
Status CheckModelIsUnsplit(const config::ParallelConfig& parallel, const std::string& what);

}  // namespace ds::engine
