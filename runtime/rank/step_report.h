#pragma once

// MakeStepReport creates the metrics.jsonl line of a finished step. The other functions create
// sentences for the user, for example for activation_checkpointing.profile. They change no state.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/checkpoint_format/manifest.h"
#include "runtime/comm/traffic.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/executor.h"

namespace ds::rank {

struct StepSeconds {
  double step = 0.0;
  std::chrono::duration<double> data{0};  // part spent waiting for micro-batches
};

// `result` belongs to the engine's latest step, `seconds` is its duration, `communicated` its
// traffic, `memory` the named memory use. The engine adds the breakdowns enabled in its config.
nlohmann::ordered_json MakeStepReport(Engine& engine, const StepResult& result, StepSeconds seconds,
                                      const comm::Traffic& communicated,
                                      nlohmann::ordered_json memory);

// Lists blocks with the time of their first and second forward pass: "block 1 (transformer.h.0)
// 3100 + 3200 us, ...".
std::string DescribeRecompute(const std::vector<DeepSpeedApi::RecomputeTimes>& times);

// Describes why a step was skipped. Requires result.skipped.
std::string DescribeSkip(const StepResult& result);

// Describes the checkpoint to which a step has returned the run.
std::string DescribeRewind(const StepResult& result, const std::filesystem::path& checkpoint);

// Describes what a checkpoint lacks that has no position in the data, as those of scripts. The data
// goes on at `position`. A schedule of the run applies if it `has_schedule`.
std::string DescribeForeign(const std::string& directory, const checkpoint::Manifest& manifest,
                            std::int64_t position, bool has_schedule);

// Describes the evaluation of a run that was started again after all its `steps`: it only
// evaluates.
std::string DescribeDoneRun(const engine::Evaluation& evaluation, std::int64_t steps);

}  // namespace ds::rank
