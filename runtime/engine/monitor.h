#pragma once

// Monitor: numbers of each step in files that other tools read, as csv_monitor and tensorboard ask
// for. The events and their names are DeepSpeed's: Train/Samples/train_loss, .../lr, in fp16
// .../loss_scale, with wall_clock_breakdown .../elapsed_time_ms_forward and its like. Each stands
// at the samples that the run has seen behind the step.
//
//   csv_monitor  <output_path>/<job_name>/Train_Samples_lr.csv and its like: a line "step,lr", then
//                one for each step; a file that is there goes on
//   tensorboard  <output_path>/<job_name>/events.out.tfevents.*: one more for each start of a run
//
// Threads: one at a time.

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

// Lists what DeepSpeed tells its monitors of a step. Pure.
std::vector<MonitorEvent> ListMonitorEvents(const config::DsConfig& config,
                                            const StepResult& result,
                                            const std::optional<PhaseTimes>& phases);

class Monitor {
 public:
  virtual ~Monitor() = default;
  // `samples` are those of all ranks since the run began.
  virtual Status Write(const std::vector<MonitorEvent>& events, std::int64_t samples) = 0;
};

// Makes the folders, the files of what every step has, and TensorBoard's, whose events have the
// clock's time. An error begins with the section's name. Of what is not
// enabled there is none. The clock outlives them.
StatusOr<std::vector<std::unique_ptr<Monitor>>> OpenMonitors(const config::DsConfig& config,
                                                             const Clock& clock = Clock::System());

}  // namespace ds::engine
