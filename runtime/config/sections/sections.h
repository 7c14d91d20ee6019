#pragma once

// The sections of a ds_config that nothing but their order knows of (file/section_order.h): rules,
// filling, and what of them a resolved config leaves out.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/config/check/rule.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

// The sections `curriculum_learning` and `data_efficiency` of a ds_config: what of the data a step
// sees (config/curriculum.h).

std::span<const Rule> DataEfficiencyRules();
// Requires values without errors.
DataEfficiency ReadDataEfficiency(const Values& values);
// Parameters of what is off, and of shapes that the schedule does not have.
bool DataEfficiencyLeavesOut(const Values& values, Key key);

// Rules for what the keys of features that are not built say together: their contradictions are
// named all the same, so that the rule is there with the feature.
//
// Where DeepSpeed contradicts itself by defect rather than by design (Muon with reduce_scatter,
// which is on by default) there is no rule; tests/unit/config/reference_rules_test.cc goes through
// DeepSpeed's checks line by line and says what became of each.

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
// A key that a newer DeepSpeed would not read.
bool PrecisionLeavesOut(const Values& values, Key key);

// The `scheduler` section of a ds_config. schedule_types.h has the table of all schedules.

std::span<const Rule> SchedulerRules();
// Rules that read its values once all have their defaults.
std::span<const Rule> ScheduleValueRules();
// A schedule that ends before a run of so many steps does: the key that says so, and a sentence.
// Requires values without errors.
struct EarlyEnd {
  Key key;
  std::string message;
};
std::optional<EarlyEnd> FindEarlyEnd(const Values& values, std::int64_t steps);
// Requires values without errors.
void FillScheduler(const Values& values, DsConfig* config);
// Parameters that the schedule does not take.
bool SchedulerLeavesOut(const Values& values, Key key);

}  // namespace ds::config
