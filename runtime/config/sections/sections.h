#pragma once

// The sections of a ds_config without a header of their own. Only file/section_order.h uses them:
// their rules, their filling, and the keys that a resolved config omits.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/config/check/rule.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

// The sections `curriculum_learning` and `data_efficiency` of a ds_config: the data that a step
// sees (config/curriculum.h).

std::span<const Rule> DataEfficiencyRules();
// Requires values without errors.
DataEfficiency ReadDataEfficiency(const Values& values);
// Returns true for parameters of features that are off, and of shapes that the schedule does not
// have.
bool DataEfficiencyOmitsKey(const Values& values, Key key);

// Rules for keys of features that are not built. Their contradictions are reported nevertheless, so
// that the rules exist once the feature does.
//
// Where DeepSpeed contradicts itself by defect rather than by design (Muon with reduce_scatter,
// which is on by default) there is no rule. tests/unit/config/reference_rules_test.cc lists
// DeepSpeed's checks line by line, and how each is treated here.

std::span<const Rule> NotBuiltRules();

// `zero_optimization.offload_param` and `offload_optimizer`, and the `aio` section of a ds_config.

std::span<const Rule> OffloadRules();
// Requires values without errors.
void FillOffload(const Values& values, DsConfig* config);

// Precision: fp16, bf16, torch_autocast, and the dtypes in which gradients are accumulated and
// reduced.

std::span<const Rule> PrecisionRules();
// Requires values without errors.
void FillPrecision(const Values& values, DsConfig* config);
// Returns true for a key that a newer DeepSpeed would not read.
bool PrecisionOmitsKey(const Values& values, Key key);

// The `scheduler` section of a ds_config. schedule_types.h has the table of all schedules.

std::span<const Rule> SchedulerRules();
// Rules that read its values after all defaults are set.
std::span<const Rule> ScheduleValueRules();
// A schedule that ends before a run of `steps` steps: the key that causes it, and a sentence.
struct EarlyEnd {
  Key key;
  std::string message;
};
std::optional<EarlyEnd> FindEarlyEnd(const Values& values, std::int64_t steps);
// Requires values without errors.
void FillScheduler(const Values& values, DsConfig* config);
// Returns true for parameters that the schedule does not accept.
bool SchedulerOmitsKey(const Values& values, Key key);

}  // namespace ds::config
