#include "runtime/config/sections/sections.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/keys/keys.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMetrics =
    "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.";
constexpr std::string_view kSeqlen = "seqlen";
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

constexpr Key kLegacy = keys::kCurriculumLearningEnabled;
constexpr Key kSampling = keys::kDataEfficiencyDataSamplingEnabled;
constexpr Key kMetric = keys::kDataEfficiencyDataSamplingCurriculumLearningEnabled;
constexpr Key kRouting = keys::kDataEfficiencyDataRoutingEnabled;
constexpr Key kLtd = keys::kDataEfficiencyDataRoutingRandomLtdEnabled;

bool IsOn(const Values& values, std::initializer_list<Key> switches) {
  return std::all_of(switches.begin(), switches.end(),
                     [&](Key key) { return values.Get(key) == true; });
}
bool HasLegacyCurriculum(const Values& values) { return IsOn(values, {kLegacy}); }
bool HasMetricCurriculum(const Values& values) {
  return IsOn(values, {keys::kDataEfficiencyEnabled, kSampling, kMetric});
}
bool HasRandomLtd(const Values& values) {
  return IsOn(values, {keys::kDataEfficiencyEnabled, kRouting, kLtd});
}

// The path of a curriculum's key in the file, of either form.
std::string PathOf(std::string_view name, bool legacy) {
  if (legacy) return "curriculum_learning." + std::string(name);
  return std::string(kMetrics) + std::string(kSeqlen) + "." + std::string(name);
}

// Reads what the schedule of a curriculum has under `name`; null without.
Json ScheduleValue(const Values& values, std::string_view name, bool legacy) {
  if (legacy) return values.Get(Key(PathOf("schedule_config." + std::string(name), true)));
  const std::string path = PathOf("schedule_config", false);
  const auto entry = values.entries().find(path);
  if (entry == values.entries().end() || !entry->second.value.is_object()) return {};
  return entry->second.value.value(std::string(name), Json());
}

Json CurriculumValue(const Values& values, std::string_view name, bool legacy) {
  const auto entry = values.entries().find(PathOf(name, legacy));
  return entry == values.entries().end() ? Json() : entry->second.value;
}

std::vector<std::string_view> NeededBySchedule(const Json& type) {
  if (type == "fixed_discrete") return {"difficulty", "max_step"};
  if (type == "fixed_linear") return {"total_curriculum_step", "difficulty_step"};
  if (type == "fixed_root") return {"total_curriculum_step", "difficulty_step", "root_degree"};
  return {};
}

void CurriculumNeedsItsKeys(RuleContext& context) {
  const Values& values = context.values;
  for (const bool legacy : {true, false}) {
    if (legacy ? !HasLegacyCurriculum(values) : !HasMetricCurriculum(values)) continue;
    const auto ask = [&](const std::string& name, const Json& value) {
      const std::string path = PathOf(name, legacy);
      if (!value.is_null() || values.IsBroken(Key(path))) return;
      context.Refuse(Key(path), "is missing: curriculum_learning needs it");
    };
    for (const char* name : {"min_difficulty", "max_difficulty", "schedule_type"}) {
      ask(name, CurriculumValue(values, name, legacy));
    }
    for (const std::string_view name :
         NeededBySchedule(CurriculumValue(values, "schedule_type", legacy))) {
      ask("schedule_config." + std::string(name), ScheduleValue(values, name, legacy));
    }
  }
}

bool HasItsKeys(const Values& values, bool legacy) {
  const auto has = [&](std::string_view name) {
    return !CurriculumValue(values, name, legacy).is_null();
  };
  const Json type = CurriculumValue(values, "schedule_type", legacy);
  const auto needed = NeededBySchedule(type);
  return has("min_difficulty") && has("max_difficulty") && !type.is_null() &&
         std::none_of(needed.begin(), needed.end(), [&](std::string_view name) {
           return ScheduleValue(values, name, legacy).is_null();
         });
}

bool IsCount(const Json& value) {
  return value.is_number_integer() && value >= Json(1) && value <= Json(kMostTokens);
}

bool AreCounts(const Json& list) {
  return list.is_array() && !list.empty() && std::all_of(list.begin(), list.end(), IsCount);
}

void CheckSchedule(RuleContext& context, bool legacy) {
  const Values& values = context.values;
  const auto refuse = [&](std::string_view name, const std::string& problem) {
    context.Refuse(Key(PathOf(name, legacy)), problem);
  };
  const Json type = CurriculumValue(values, "schedule_type", legacy);
  if (type == "custom") {
    return refuse(
        "schedule_type",
        "custom needs a function, which JSON cannot hold: use fixed_linear, fixed_root or "
        "fixed_discrete");
  }
  if (NeededBySchedule(type).empty()) {
    return refuse("schedule_type",
                  "must be fixed_linear, fixed_root or fixed_discrete, not " + ShortDump(type));
  }
  for (const std::string_view name : NeededBySchedule(type)) {
    const Json value = ScheduleValue(values, name, legacy);
    const bool is_list = type == "fixed_discrete";
    if (is_list ? AreCounts(value) : IsCount(value)) continue;
    refuse("schedule_config." + std::string(name),
           std::string("must be ") +
               (is_list ? "a list of whole numbers from 1" : "a whole number from 1") + ", not " +
               ShortDump(value));
    return;
  }
  if (type != "fixed_discrete") return;
  const Json levels = ScheduleValue(values, "difficulty", legacy);
  const Json steps = ScheduleValue(values, "max_step", legacy);
  if (levels.size() != steps.size() + 1) {
    refuse("schedule_config.max_step",
           "must have one number less than difficulty, which has " + std::to_string(levels.size()));
  } else if (!std::is_sorted(steps.begin(), steps.end())) {
    refuse("schedule_config.max_step", "must ascend");
  }
}

void CurriculumIsDefined(RuleContext& context) {
  const Values& values = context.values;
  const bool legacy = HasLegacyCurriculum(values), metric = HasMetricCurriculum(values);
  if (legacy && metric) {
    context.Refuse(kLegacy, "is the older form of data_efficiency's: give one");
  }
  // What is missing has been said.
  if (legacy && HasItsKeys(values, true)) CheckSchedule(context, true);
  if (metric && HasItsKeys(values, false)) CheckSchedule(context, false);
}

void MetricIsTheLength(RuleContext& context) {
  if (!HasMetricCurriculum(context.values)) return;
  for (const auto& [path, entry] : context.values.entries()) {
    if (!std::string_view(path).starts_with(kMetrics)) continue;
    const std::string rest = path.substr(kMetrics.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (name != kSeqlen) {
      context.issues.Error(path,
                           path + ": the metric " + name +
                               " is not built: samples would be chosen by maps that a Python tool "
                               "makes; seqlen is",
                           entry.position);
      return;
    }
  }
  for (const auto& [name, only] :
       {std::pair{"difficulty_type", "value"}, std::pair{"clustering_type", "single_cluster"}}) {
    const Json value = CurriculumValue(context.values, name, false);
    if (value.is_null() || value == only) continue;
    context.Refuse(Key(PathOf(name, false)), "must be " + std::string(only) +
                                                 ": samples are cut to a length, not chosen by it");
  }
}

constexpr Key kLtdLayers = keys::kDataEfficiencyDataRoutingRandomLtdRandomLtdLayerId;
constexpr Key kLtdNumber = keys::kDataEfficiencyDataRoutingRandomLtdRandomLtdLayerNum;
constexpr Key kLtdTotal = keys::kDataEfficiencyDataRoutingRandomLtdTotalLayerNum;
constexpr Key kLtdModel = keys::kDataEfficiencyDataRoutingRandomLtdModelType;
constexpr Key kLtdMin = keys::kDataEfficiencyDataRoutingRandomLtdRandomLtdScheduleMinValue;
constexpr Key kLtdMax = keys::kDataEfficiencyDataRoutingRandomLtdRandomLtdScheduleMaxValue;
constexpr Key kLtdSchedule = keys::kDataEfficiencyDataRoutingRandomLtdRandomLtdScheduleScheduleType;
constexpr Key kLtdSteps =
    keys::kDataEfficiencyDataRoutingRandomLtdRandomLtdScheduleScheduleConfigRequireSteps;
constexpr Key kLtdMultiple =
    keys::kDataEfficiencyDataRoutingRandomLtdRandomLtdScheduleScheduleConfigSeqPerStep;

constexpr Key kLtdKeys[] = {kLtdTotal, kLtdNumber,   kLtdLayers, kLtdModel,   kLtdMin,
                            kLtdMax,   kLtdSchedule, kLtdSteps,  kLtdMultiple};

// The layers that drop tokens; nothing where the list does not name layers of the model.
std::optional<std::set<std::int64_t>> FindLtdLayers(const Values& values) {
  std::set<std::int64_t> ids;
  for (const Json& layer : values.Get(kLtdLayers)) {
    const bool is_layer =
        layer.is_number_integer() && layer >= Json(0) && layer < values.Get(kLtdTotal);
    if (!is_layer || !ids.insert(layer.get<std::int64_t>()).second) return std::nullopt;
  }
  return ids;
}

void RandomLtdNeedsItsKeys(RuleContext& context) {
  const Values& values = context.values;
  if (!HasRandomLtd(values)) return;
  for (const Key key : kLtdKeys) {
    if (values.IsGiven(key) || values.IsBroken(key)) continue;
    context.Refuse(key, "is missing: random_ltd needs it");
  }
}

void RandomLtdIsDefined(RuleContext& context) {
  const Values& values = context.values;
  if (!HasRandomLtd(values)) return;
  for (const Key key : kLtdKeys) {
    if (!values.IsGiven(key) || values.IsBroken(key)) return;
  }
  if (values.Get(kLtdModel) != "decoder") {
    context.Refuse(kLtdModel, "must be decoder: so are the models here");
  }
  const auto layers = FindLtdLayers(values);
  if (!layers) {
    context.Refuse(kLtdLayers, "must name layers from 0 to total_layer_num - 1, each once, not " +
                                   ShortDump(values.Get(kLtdLayers)));
  } else if (values.Get(kLtdNumber) != Json(layers->size())) {
    context.Refuse(kLtdNumber,
                   "must be the number of random_ltd_layer_id, " + std::to_string(layers->size()));
  }
  if (values.Get(kLtdMin) < values.Get(kLtdMultiple)) {
    context.Refuse(kLtdMin, "must not be below seq_per_step: no token would be left at first");
  }
}

// Attention is of whole samples there, of which each rank has a part.
void LengthsAreOfWholeSamples(RuleContext& context) {
  const Json ranks = context.values.Get(keys::kSequenceParallelSize);
  if (!ranks.is_number() || ranks <= Json(1)) return;
  const auto refuse = [&](Key key) {
    context.Refuse(key, "cannot be combined with sequence_parallel_size " + ranks.dump() +
                            ": what it leaves of a sample is not cut among ranks");
  };
  if (HasLegacyCurriculum(context.values)) refuse(kLegacy);
  if (HasMetricCurriculum(context.values)) refuse(kMetric);
  if (HasRandomLtd(context.values)) refuse(kLtd);
}

constexpr Rule kRules[] = {
    {"CurriculumNeedsItsKeys", {kLegacy, kMetric}, CurriculumNeedsItsKeys},
    {"MetricIsTheLength", {kMetric}, MetricIsTheLength},
    {"CurriculumIsDefined", {kLegacy, kMetric}, CurriculumIsDefined},
    {"RandomLtdNeedsItsKeys", {kLtd}, RandomLtdNeedsItsKeys},
    {"RandomLtdIsDefined", {kLtd}, RandomLtdIsDefined},
    {"LengthsAreOfWholeSamples", {keys::kSequenceParallelSize}, LengthsAreOfWholeSamples},
};

CurriculumConfig ReadCurriculum(const Values& values, bool legacy) {
  CurriculumConfig curriculum{.min_difficulty = CurriculumValue(values, "min_difficulty", legacy),
                              .max_difficulty = CurriculumValue(values, "max_difficulty", legacy)};
  const Json type = CurriculumValue(values, "schedule_type", legacy);
  if (type == "fixed_discrete") {
    curriculum.difficulty =
        ScheduleValue(values, "difficulty", legacy).get<std::vector<std::int64_t>>();
    curriculum.max_step =
        ScheduleValue(values, "max_step", legacy).get<std::vector<std::int64_t>>();
    return curriculum;
  }
  curriculum.total_curriculum_step = ScheduleValue(values, "total_curriculum_step", legacy);
  curriculum.difficulty_step = ScheduleValue(values, "difficulty_step", legacy);
  if (type == "fixed_root") curriculum.root_degree = ScheduleValue(values, "root_degree", legacy);
  return curriculum;
}

}  // namespace

std::span<const Rule> DataEfficiencyRules() { return kRules; }

DataEfficiency ReadDataEfficiency(const Values& values) {
  DataEfficiency read;
  if (HasLegacyCurriculum(values)) read.curriculum = ReadCurriculum(values, true);
  if (HasMetricCurriculum(values)) read.curriculum = ReadCurriculum(values, false);
  if (!HasRandomLtd(values)) return read;
  read.random_ltd =
      RandomLtdConfig{.total_layer_num = values.Get(kLtdTotal),
                      .layers = values.Get(kLtdLayers).get<std::vector<std::int64_t>>(),
                      .min_value = values.Get(kLtdMin),
                      .max_value = values.Get(kLtdMax),
                      .require_steps = values.Get(kLtdSteps),
                      .seq_per_step = values.Get(kLtdMultiple)};
  return read;
}

bool DataEfficiencyLeavesOut(const Values& values, Key key) {
  const std::string_view path = key;
  if (path.starts_with("curriculum_learning.")) {
    if (!HasLegacyCurriculum(values)) return true;
    constexpr std::string_view kShape = "curriculum_learning.schedule_config.";
    if (!path.starts_with(kShape)) return false;
    const auto needed = NeededBySchedule(values.Get(keys::kCurriculumLearningScheduleType));
    return std::find(needed.begin(), needed.end(), path.substr(kShape.size())) == needed.end();
  }
  return path.starts_with("data_efficiency.") && values.Get(keys::kDataEfficiencyEnabled) != true;
}

}  // namespace ds::config
