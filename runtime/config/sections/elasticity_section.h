#pragma once

// The `elasticity` section of a ds_config: read, checked, and what follows from it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/values.h"
#include "runtime/config/check_config.h"
#include "runtime/config/rules.h"
#include "runtime/config/sections/elasticity.h"

namespace ds::config {

// The section's values, or nothing when `issues` holds what is wrong with them. Requires that
// elasticity is enabled.
std::optional<ElasticityConfig> ReadElasticity(const Values& values, IssueLog& issues);

// The rule: an enabled section decides the three batch sizes, which must not be given beside it.
void ElasticityDecidesTheBatch(RuleContext& context);

// The environment variable in which a resource scheduler leaves the section that it has seen.
inline constexpr char kSchedulerElasticity[] = "DEEPSPEED_ELASTICITY_CONFIG";

// Whether that section (`scheduler_json`) has the cap, the micro-batch sizes and the version of the
// checked config; always OK when elasticity is off there. Requires result.ok.
Status AgreesWithScheduler(const CheckResult& result, std::string_view scheduler_json);

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
