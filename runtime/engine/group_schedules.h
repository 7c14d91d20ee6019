#pragma once

// Parameter groups whose rates follow a schedule on their own: those that lists in scheduler.params
// have numbers for, and Muon's halves.
//
// Groups are what ParameterGroup tells apart among the trained parameters, numbered as they first
// occur in the model, under Muon its matrices first: as DeepSpeed's engine and the usual scripts
// order theirs (what decays, then what does not).

#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::engine {

// Gives each trained parameter the schedule of its group, whose rate the lists then say: its factor
// becomes 1, as the lists replace a group's own rate in DeepSpeed. Returns the groups' own rates,
// which a schedule may still begin or end at; nothing where all parameters follow one rate. Without
// lists Muon's matrices are the first group and what AdamW updates is the second, under the one
// schedule: a number in it is the rate of both, as in DeepSpeed. Fails when the model has not as
// many groups as the lists have numbers.
StatusOr<std::vector<double>> FollowGroupSchedules(const config::DsConfig& config,
                                                   std::vector<zero::ParameterUnit>* units);

}  // namespace ds::engine
