#pragma once

// Simulation of a pipeline step: computes the timeline of every stage from the durations of its
// tasks. It runs the stages' programs as ranks would, so it also finds their errors: a task before
// its input, messages received in another order than sent, deadlocks between stages. Pure.
// Thread-safe.

#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/pipeline/stage_program.h"

namespace ds::pipeline {

// Durations of one virtual stage's tasks, in any unit. A backward takes both gradients' times.
struct TaskTimes {
  double forward = 1.0;
  double input_gradient = 1.0;
  double weight_gradient = 1.0;
};

struct StepTimes {
  std::vector<TaskTimes> tasks;  // by virtual stage
  double transfer = 0.0;         // from the end of a task to its message's arrival
};

struct TaskSpan {
  Task task;
  double begin = 0.0;
  double end = 0.0;
};

struct Timeline {
  std::vector<std::vector<TaskSpan>> spans;  // by stage, in order

  // Returns the time from the first task of any stage to the end of the last one.
  double Length() const;
  // Returns the fraction of the stages' time in which they are idle.
  double BubbleFraction() const;
};

// Requires durations for every virtual stage. InternalError describes an error in the programs.
StatusOr<Timeline> SimulateStep(const PipelineSchedule& schedule,
                                const std::vector<StageProgram>& programs, const StepTimes& times);

}  // namespace ds::pipeline
