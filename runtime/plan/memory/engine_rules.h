#pragma once

// Rules of a training that follow from the config and the numbers of ranks alone. The engine asks
// for them when it is built, dsrun before ranks start.
//
// Pure; safe from any thread.

#include <string>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::engine {

struct EngineSetting {
  // EngineOptions::non_finite is NonFinitePolicy::kSkip.
  bool skips_non_finite = false;
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;  // of each stage
};

// Refuses pairs of choices that are not built: what updates in the backward pass or knows the whole
// model where ranks have parts of it, and micro-batches that the schedule of stages does not take.
Status CheckEngineRules(const config::DsConfig& config, const EngineSetting& setting);

// Refuses `what`, which knows whole models only, where ranks have parts of them.
Status CheckModelIsNotCut(const config::ParallelConfig& parallel, const std::string& what);

}  // namespace ds::engine
