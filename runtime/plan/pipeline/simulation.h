#pragma once

// Simulation of a step of a pipeline: when every stage would compute what, from how long its tasks
// take. It runs the stages' programs as ranks would, so it finds what a list does wrong, too: a
// task whose input has not come, messages that are received in another order than they are sent,
// stages that wait for each other. Pure; safe from any thread.

#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/pipeline/stage_program.h"

namespace ds::pipeline {

// Times of one virtual stage, in any unit. A backward takes the last two together.
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

  // From the first task of any stage to the last one's end.
  double Length() const;
  // The share of the stages' time in which they compute nothing.
  double BubbleFraction() const;
};

// Requires times of every virtual stage. InternalError says what is wrong with the programs.
StatusOr<Timeline> SimulateStep(const Schedule& schedule, const std::vector<StageProgram>& programs,
                                const StepTimes& times);

}  // namespace ds::pipeline
