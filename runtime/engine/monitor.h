#pragma once

// Monitor writes the values of each step to files for other tools (csv_monitor and tensorboard).
// The events and their names are DeepSpeed's: Train/Samples/train_loss, .../lr, in fp16
// .../loss_scale, with wall_clock_breakdown .../elapsed_time_ms_forward and others. The x value of
// each is the run's number of samples after the step.
//
//   csv_monitor  <output_path>/<job_name>/Train_Samples_lr.csv and others: a line "step,lr", then
//                one line per step; an existing file is appended to
//   tensorboard  <output_path>/<job_name>/events.out.tfevents.*: a new file at each start of a run
//
// Not thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/engine/report/phase_timers.h"
#include "runtime/engine/step_result.h"

namespace ds::engine {

struct MonitorEvent {
  std::string name;  // "Train/Samples/lr"
  double value = 0.0;
};

// Returns the events that DeepSpeed sends to its monitors for a step. Pure.
std::vector<MonitorEvent> ListMonitorEvents(const config::DsConfig& config,
                                            const StepResult& result,
                                            const std::optional<PhaseTimes>& phases);

class Monitor {
 public:
  virtual ~Monitor() = default;
  // `samples` is the number of samples on all ranks since the run began.
  virtual Status Write(const std::vector<MonitorEvent>& events, std::int64_t samples) = 0;
};

// Creates the folders, the CSV files of events that every step has, and TensorBoard's file, with
// timestamps from `clock`. Errors begin with the section's name. Returns monitors for enabled
// sections only. The clock must outlive them.
StatusOr<std::vector<std::unique_ptr<Monitor>>> OpenMonitors(const config::DsConfig& config,
                                                             const Clock& clock = Clock::System());

}  // namespace ds::engine
