#pragma once

// StepReports tells dsrun of the steps of this process's engines, as dsrank does of its own: rank 0
// writes a line of metrics.jsonl, and every rank says that it is alive. Without dsrun nothing is
// reported.
//
// If a process trains several engines, one reports: the engine that was the first to step
// while none reported. Threads: as Engine.

#include <chrono>

#include "runtime/comm/traffic.h"
#include "runtime/engine/engine.h"

namespace ds::python {

class StepReports {
 public:
  StepReports() = default;
  ~StepReports();
  StepReports(const StepReports&) = delete;
  StepReports& operator=(const StepReports&) = delete;

  // Call these around each forward pass, and after each step(). The time between a step and the
  // next pass counts as waiting for data, or as part of an evaluation if that pass `evaluates`.
  // Evaluations are no part of the step in progress; their time is its line's "eval_seconds".
  void BeginForward(bool evaluates);
  void EndForward();
  void OnStep(Engine& engine, const StepResult& result);

 private:
  using Time = std::chrono::steady_clock::time_point;
  // kNothing: before the first step.
  enum class Activity { kNothing, kWaiting, kWorking, kEvaluating };

  void Report(Engine& engine, const StepResult& result, Time now);

  Activity activity_ = Activity::kNothing;
  Activity interrupted_ = Activity::kNothing;  // by the evaluation in progress
  Time since_{}, begin_{};                     // of the activity and the step
  std::chrono::duration<double> waited_{0}, evaluated_{0};
  comm::Traffic traffic_;  // before the step
};

}  // namespace ds::python
