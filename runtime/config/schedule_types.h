#pragma once

// ScheduleType: a scheduler.type by its name, with the parameters it takes, their defaults and the
// Schedule they fill. DeepSpeed's and PyTorch's are rows of schedule.cc, those of transformers of
// transformers_schedule.cc.
//
// Threads: constants.

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/keys/key.h"
#include "runtime/config/schedule.h"

namespace ds::config {

class Values;

// A parameter of a schedule, and what it is when not given.
struct ScheduleParam {
  Key key;
  std::string_view otherwise;  // JSON, "required", or "" for the default of the registry
};

struct ScheduleType {
  std::string_view name;  // the scheduler.type
  std::span<const ScheduleParam> params;
  // Requires values without errors. `group` counts where parameters are lists, one per group.
  Schedule (*fill)(const Values& values, std::size_t group);

  bool Takes(Key key) const;
};

// The chosen scheduler.type; null without one, and for one that is refused.
const ScheduleType* ChosenSchedule(const Values& values);

// The schedules of transformers' get_scheduler. Their warm-up may have 0 steps, and their lengths
// have DeepSpeed's names: warmup_num_steps, total_num_steps.
std::span<const ScheduleType> TransformersSchedules();
// Null for a name that is none of theirs.
const ScheduleType* FindTransformersSchedule(std::string_view name);

// The `scheduler` section of one of them: its lengths are "auto", the other parameters `kwargs`,
// an object.
nlohmann::ordered_json MakeTransformersSection(const ScheduleType& type,
                                               const nlohmann::ordered_json& kwargs);
// The names of the kwargs that it takes.
std::vector<std::string> KwargNames(const ScheduleType& type);

}  // namespace ds::config
