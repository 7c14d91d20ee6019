#pragma once

// The `scheduler` section of a ds_config: which parameters each schedule takes, what they are when
// not given, and the Schedule they describe.

#include <cstddef>

#include "runtime/config/check/values.h"
#include "runtime/config/rules.h"
#include "runtime/config/schedule.h"

namespace ds::config {

// Rules.

// Parameters without a scheduler.type would be ignored.
void SchedulerParamsNeedAType(RuleContext& context);
// LambdaLR and its like cannot be described by JSON.
void ScheduleIsDescribedByNumbers(RuleContext& context);
// As the constructor of the schedule: what it does not know is refused, what it needs and lacks is
// asked for, the rest gets its default.
void ScheduleTakesItsParams(RuleContext& context);
// Values that their own range admits, but not the schedule.
void ScheduleIsDefined(RuleContext& context);
// A list has a number for each parameter group; how many there are only the model says.
void ListsHaveOneLength(RuleContext& context);
// WarmupLR ends at the optimizer's lr unless told otherwise, WarmupDecayLR at 0.001 unless "auto".
void WarmupEndsAtTheLearningRate(RuleContext& context);
// Optimizers without betas: OneCycle leaves their momentum alone, as in DeepSpeed; PyTorch's cyclic
// schedules move SGD's, if it has one.
void CycledMomentumNeedsAPlace(RuleContext& context);
// OneCycle with momentum replaces both betas of the optimizer, beta2 by 0.99.
void OneCycleReplacesTheBetas(RuleContext& context);

// Both require values without errors.
// How many numbers the lists among the parameters have; 0 without lists.
std::size_t GroupsOfLists(const Values& values);
// That of parameter group `group`, which counts where there are lists only.
Schedule FillSchedule(const Values& values, std::size_t group);

}  // namespace ds::config
