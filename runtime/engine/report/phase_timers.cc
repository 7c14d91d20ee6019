#include "runtime/engine/report/phase_timers.h"

#include <cstdio>
#include <string>
#include <utility>

#include "runtime/device/rank_device.h"

namespace ds::engine {
namespace {

constexpr std::array<PhaseTimers::Phase, 5> kPhases = {
    &PhaseTimes::forward, &PhaseTimes::backward, &PhaseTimes::backward_inner,
    &PhaseTimes::backward_allreduce, &PhaseTimes::step};
constexpr std::array<std::string_view, 5> kMicroBatchNames = {
    "fwd_microstep", "bwd_microstep", "bwd_inner_microstep", "bwd_allreduce_microstep",
    "step_microstep"};
constexpr std::array<std::string_view, 5> kStepNames = {"fwd", "bwd", "bwd_inner", "bwd_allreduce",
                                                        "step"};

}  // namespace

std::chrono::nanoseconds PhaseTimers::ReadClock() const {
  if (!options_.device.is_cpu()) device::Synchronize(options_.device);
  return options_.clock->Now();
}

void PhaseTimers::Start(Phase phase) {
  if (options_.enabled) begins_.*phase = ReadClock();
}

void PhaseTimers::Stop(Phase phase) {
  if (!options_.enabled) return;
  if (!micro_batch_) micro_batch_.emplace();
  *micro_batch_.*phase += ReadClock() - begins_.*phase;
}

void PhaseTimers::EndMicroBatch() {
  if (!micro_batch_) return;
  if (options_.prints_micro_batches) Print(kMicroBatchNames, *micro_batch_);
  for (const Phase phase : kPhases) step_.*phase += *micro_batch_.*phase;
  micro_batch_.reset();
}

void PhaseTimers::EndStep() {
  if (!options_.enabled) return;
  EndMicroBatch();
  Print(kStepNames, step_);
  latest_ = std::exchange(step_, {});
}

void PhaseTimers::Print(const std::array<std::string_view, 5>& names,
                        const PhaseTimes& times) const {
  if (!options_.prints) return;
  std::string line = "time (ms)";
  for (std::size_t i = 0; i < kPhases.size(); ++i) {
    std::array<char, 32> number{};
    const std::chrono::duration<double, std::milli> milliseconds = times.*kPhases[i];
    std::snprintf(number.data(), number.size(), "%.2f", milliseconds.count());
    line += " | " + std::string(names[i]) + ": " + number.data();
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace ds::engine
