#pragma once

// MakeStepReport says what a finished step was: a line of metrics.jsonl. Beside it the sentences
// that activation_checkpointing.profile asks for. Nothing here changes anything.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/comm/traffic.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/loop/train_step.h"

namespace ds::rank {

struct StepSeconds {
  double step = 0.0;
  std::chrono::duration<double> data{0};  // of that waited for micro-batches
};

// `result` is of the engine's latest step, `seconds` what it took, `communicated` what it has sent,
// `memory` what is held by name; the engine adds the breakdowns that its config asks for.
nlohmann::ordered_json MakeStepReport(Engine& engine, const StepResult& result, StepSeconds seconds,
                                      const comm::Traffic& communicated,
                                      nlohmann::ordered_json memory);

// Lists blocks with the time of their first and second forward pass: "block 1 (transformer.h.0)
// 3100 + 3200 us, ...".
std::string DescribeRecompute(const std::vector<DeepSpeedApi::RecomputeTimes>& times);

// Says why a step was skipped. Requires result.skipped.
std::string DescribeSkip(const StepResult& result);

// Says to which checkpoint a step has sent the run back.
std::string DescribeRewind(const StepResult& result, const std::filesystem::path& checkpoint);

// Says what a run that has all its `steps` is evaluated to.
std::string DescribeDoneRun(const engine::Evaluation& evaluation, std::int64_t steps);

}  // namespace ds::rank
