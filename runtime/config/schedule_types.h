#pragma once

// ScheduleType describes a scheduler.type: its name, the parameters it accepts, their defaults and
// the Schedule that they fill. DeepSpeed's and PyTorch's types are rows of schedule.cc, those from
// transformers are rows of transformers_schedule.cc.
//
// Thread-safe: constants.

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/keys/key.h"
#include "runtime/config/schedule.h"

namespace ds::config {

class Values;

// A parameter of a schedule, and its default.
struct ScheduleParam {
  Key key;
  std::string_view otherwise;  // JSON, "required", or "" for the default of the registry
};

struct ScheduleType {
  std::string_view name;  // the scheduler.type
  std::span<const ScheduleParam> params;
  // Builds the schedule of a parameter group. `group` selects the element where parameters are
  // lists, one per group. Requires values without errors.
  Schedule (*fill)(const Values& values, std::size_t group);

  bool Takes(Key key) const;
};

// Returns the chosen scheduler.type; null without one, and for a rejected one.
const ScheduleType* ChosenSchedule(const Values& values);

// Returns the schedules of transformers' get_scheduler. Their warm-up may have 0 steps. Their
// lengths have DeepSpeed's names: warmup_num_steps, total_num_steps.
std::span<const ScheduleType> TransformersSchedules();
// Returns null for an unknown name.
const ScheduleType* FindTransformersSchedule(std::string_view name);

// Builds the `scheduler` section of one of these types. Its lengths are "auto"; the other
// parameters come from `kwargs`, an object.
nlohmann::ordered_json MakeTransformersSection(const ScheduleType& type,
                                               const nlohmann::ordered_json& kwargs);
// Returns the names of the kwargs that it accepts.
std::vector<std::string> KwargNames(const ScheduleType& type);

}  // namespace ds::config
