#pragma once

// StepReporter measures an engine's steps on this rank and reports them: memory after each phase
// (memory_breakdown), times of the phases (wall_clock_breakdown), and the monitors of rank 0.
//
// Not thread-safe. The clock must outlive this object.

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/engine/memory_marks.h"
#include "runtime/engine/monitor.h"
#include "runtime/engine/report/phase_timers.h"
#include "runtime/engine/step_result.h"

namespace ds::engine {

struct StepReporter {
  const Clock* clock = nullptr;  // of all time measurements; borrowed
  MemoryMarks memory;
  PhaseTimers phases;
  std::vector<std::unique_ptr<Monitor>> monitors;  // on rank 0

  // Writes the finished step to the monitors. `samples` is the number of samples on all ranks since
  // the run began.
  Status WriteMonitors(const config::DsConfig& config, const StepResult& result,
                       std::int64_t samples) const;
};

}  // namespace ds::engine
