#pragma once

// Reads and checks the `elasticity` section of a ds_config and derives the batch sizes from it.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/config/check/rule.h"
#include "runtime/config/sections/elasticity.h"

namespace ds::config {

std::span<const Rule> ElasticityRules();
// Returns true for the section itself: a resolved config has the batch sizes that it decides
// instead, and DeepSpeed 0.19.8 rejects the section.
bool ElasticityOmitsKey(const Values& values, Key key);

// The environment variable in which a resource scheduler stores the section it has read.
inline constexpr char kSchedulerElasticity[] = "DEEPSPEED_ELASTICITY_CONFIG";

// Fails unless that section (`scheduler_json`) has the same cap, micro-batch sizes and version as
// `given`, the CheckResult::given of a config without errors. Always OK when elasticity is off in
// `given`.
Status AgreesWithScheduler(const nlohmann::ordered_json& given, std::string_view scheduler_json);

// The number of GPUs of the job, as far as it is known.
struct ElasticQuestion {
  std::optional<std::int64_t> num_gpus;
  // Used when `num_gpus` is absent, but only by version 0.2, which needs a number.
  std::optional<std::int64_t> num_gpus_of_environment;
};

// Solves the section of a ds_config file; other keys are not checked. The error has a line with
// position and key for every problem.
StatusOr<ElasticBatch> ElasticBatchOf(std::string_view json_text, std::string_view file_name,
                                      const ElasticQuestion& question);

}  // namespace ds::config
