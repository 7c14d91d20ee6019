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

  // Call these before a forward pass, and after each step(). The time in between counts as waiting
  // for data.
  void EndWait();
  void OnStep(Engine& engine, const StepResult& result);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void Report(Engine& engine, const StepResult& result, Time now);

  Time begin_{}, waits_since_{};  // of the step and the wait in progress; zero: none
  std::chrono::duration<double> waited_{0};
  comm::Traffic traffic_;  // before the step
};

}  // namespace ds::python
