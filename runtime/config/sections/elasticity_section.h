#pragma once

// The `elasticity` section of a ds_config: read, checked, and what follows from it.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/config/check/rule.h"
#include "runtime/config/sections/elasticity.h"

namespace ds::config {

std::span<const Rule> ElasticityRules();
// The section itself: the batch sizes that it decides stand for it, and DeepSpeed 0.19.8 refuses
// it.
bool ElasticityLeavesOut(const Values& values, Key key);

// The environment variable in which a resource scheduler leaves the section that it has seen.
inline constexpr char kSchedulerElasticity[] = "DEEPSPEED_ELASTICITY_CONFIG";

// Fails unless that section (`scheduler_json`) has the cap, the micro-batch sizes and the version
// of a config that was checked without errors, CheckResult::given; always OK when elasticity is off
// there.
Status AgreesWithScheduler(const nlohmann::ordered_json& given, std::string_view scheduler_json);

// The number of GPUs of the job, as far as it is known.
struct ElasticQuestion {
  std::optional<std::int64_t> num_gpus;
  // Taken when `num_gpus` is absent, but only by version 0.2, which needs a number.
  std::optional<std::int64_t> num_gpus_of_environment;
};

// The answer for the section of a ds_config file, whose other keys are not judged. The error has a
// line with place and key for everything that is wrong.
StatusOr<ElasticBatch> ElasticBatchOf(std::string_view json_text, std::string_view file_name,
                                      const ElasticQuestion& question);

}  // namespace ds::config
