#include "runtime/config/sections/sections.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/curriculum_values.h"
#include "runtime/config/sections/dynamic_batching_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

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

struct CurriculumInUse {
  CurriculumPath path;
  bool cuts = true;  // false: it selects samples
};

std::vector<CurriculumInUse> ListCurricula(const Values& values) {
  std::vector<CurriculumInUse> curricula;
  if (HasLegacyCurriculum(values)) curricula.push_back({CurriculumPath::Legacy()});
  if (!HasMetricCurriculum(values)) return curricula;
  for (const std::string& metric : ListMetrics(values)) {
    curricula.push_back({CurriculumPath::Metric(metric), CutsSamples(values, metric)});
  }
  return curricula;
}

void CurriculumNeedsItsKeys(RuleContext& context) {
  const Values& values = context.values;
  for (const auto& [path, cuts] : ListCurricula(values)) {
    const auto ask = [&, &path = path](const std::string& name, const Json& value) {
      const std::string key = path.Of(name);
      if (!value.is_null() || values.IsBroken(Key(key))) return;
      context.Refuse(Key(key), "is missing: curriculum_learning needs it");
    };
    for (const char* name : {"min_difficulty", "max_difficulty", "schedule_type"}) {
      ask(name, path.Value(values, name));
    }
    for (const std::string_view name : NeededBySchedule(path.Value(values, "schedule_type"))) {
      ask("schedule_config." + std::string(name), path.ScheduleValue(values, name));
    }
  }
}

bool HasItsKeys(const Values& values, const CurriculumPath& path) {
  const Json type = path.Value(values, "schedule_type");
  const auto needed = NeededBySchedule(type);
  return !path.Value(values, "min_difficulty").is_null() &&
         !path.Value(values, "max_difficulty").is_null() && !type.is_null() &&
         std::none_of(needed.begin(), needed.end(), [&](std::string_view name) {
           return path.ScheduleValue(values, name).is_null();
         });
}

bool IsCount(const Json& value) {
  return value.is_number_integer() && value >= Json(1) && value <= Json(kMostTokens);
}

bool AreCounts(const Json& list) {
  return list.is_array() && !list.empty() && std::all_of(list.begin(), list.end(), IsCount);
}

// Checks the lists of a discrete schedule.
void CheckLevels(RuleContext& context, const CurriculumInUse& curriculum) {
  const Json levels = curriculum.path.ScheduleValue(context.values, "difficulty");
  const Json steps = curriculum.path.ScheduleValue(context.values, "max_step");
  const std::string key = curriculum.path.Of("schedule_config.max_step");
  const Key at(key);
  if (levels.size() != steps.size() + 1) {
    context.Refuse(at, "must have one number less than difficulty, which has " +
                           std::to_string(levels.size()));
  } else if (!std::is_sorted(steps.begin(), steps.end())) {
    context.Refuse(at, "must ascend");
  } else if (!curriculum.cuts && !std::is_sorted(levels.begin(), levels.end())) {
    context.Refuse(Key(curriculum.path.Of("schedule_config.difficulty")),
                   "must ascend: samples that a step has seen are not taken back");
  }
}

void TellOfNoEffect(RuleContext& context, const CurriculumPath& path, const std::string& name,
                    const std::string& reason) {
  const std::string given = path.Of(name.substr(0, name.find('.')));
  context.issues.Warning(path.Of(name), path.Of(name) + " has no effect: " + reason,
                         context.values.PositionOf(Key(given)));
}

// Reports unread keys of a metric's schedule_config. It is one value for the registry, which does
// not check its keys.
void TellOfUnread(RuleContext& context, const CurriculumPath& path, const std::string& type) {
  const Json shape = path.Value(context.values, "schedule_config");
  if (!shape.is_object()) return;
  const auto needed = NeededBySchedule(type);
  for (const auto& item : shape.items()) {
    if (std::find(needed.begin(), needed.end(), item.key()) != needed.end()) continue;
    TellOfNoEffect(context, path, "schedule_config." + item.key(), type + " does not read it");
  }
}

void CheckSchedule(RuleContext& context, const CurriculumInUse& curriculum) {
  const CurriculumPath& path = curriculum.path;
  const auto refuse = [&](std::string_view name, const std::string& problem) {
    context.Refuse(Key(path.Of(name)), problem);
  };
  const Json type = path.Value(context.values, "schedule_type");
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
    const Json value = path.ScheduleValue(context.values, name);
    const bool is_list = type == "fixed_discrete";
    if (is_list ? AreCounts(value) : IsCount(value)) continue;
    refuse("schedule_config." + std::string(name),
           std::string("must be ") +
               (is_list ? "a list of whole numbers from 1" : "a whole number from 1") + ", not " +
               ShortDump(value));
    return;
  }
  TellOfUnread(context, path, type.get<std::string>());
  if (type == "fixed_discrete") CheckLevels(context, curriculum);
}

void CurriculumIsDefined(RuleContext& context) {
  const Values& values = context.values;
  if (HasLegacyCurriculum(values) && HasMetricCurriculum(values)) {
    context.Refuse(kLegacy, "is the older form of data_efficiency's: give one");
  }
  for (const CurriculumInUse& curriculum : ListCurricula(values)) {
    // Missing keys are reported already.
    if (HasItsKeys(values, curriculum.path)) CheckSchedule(context, curriculum);
  }
}

bool IsLength(std::string_view metric) { return metric == "seqlen" || metric == "seqlen_truncate"; }

void CheckCut(RuleContext& context, const std::string& metric) {
  const CurriculumPath path = CurriculumPath::Metric(metric);
  if (!IsLength(metric)) {
    context.Refuse(Key(path.Of("clustering_type")),
                   "is single_cluster, which leaves all samples in: only seqlen and "
                   "seqlen_truncate do something then, they cut samples; to choose samples by " +
                       metric + " use schedule_based");
  } else if (path.Value(context.values, "difficulty_type") == "percentile") {
    context.Refuse(Key(path.Of("difficulty_type")),
                   "must be value: samples are cut to a length, not chosen by it");
  }
  for (const char* map : {"index_to_sample_path", "index_to_metric_path"}) {
    if (path.Value(context.values, map).is_null()) continue;
    TellOfNoEffect(context, path, map, "samples are cut to a length, not looked up");
  }
}

void CheckChoice(RuleContext& context, const std::string& metric) {
  const CurriculumPath path = CurriculumPath::Metric(metric);
  const auto lacks = [&](const char* key) {
    const Json value = path.Value(context.values, key);
    return !value.is_string() || value == "";
  };
  if (lacks("index_to_sample_path") && !lacks("index_to_metric_path")) {
    context.Refuse(Key(path.Of("index_to_metric_path")),
                   "needs index_to_sample_path, of whose rows it has the metrics");
  } else if (lacks("index_to_sample_path")) {
    if (metric == "vocabularyrarity" || metric == "seqlen") return;
    context.Refuse(
        Key(path.Of("index_to_sample_path")),
        "is missing: vocabularyrarity and seqlen are computed without it, " + metric + " is not");
  } else if (lacks("index_to_metric_path") &&
             path.Value(context.values, "difficulty_type") != "percentile") {
    context.Refuse(Key(path.Of("index_to_metric_path")),
                   "is missing: difficulty_type value needs it");
  }
}

void MetricsAreKnown(RuleContext& context) {
  const Values& values = context.values;
  if (!HasMetricCurriculum(values)) return;
  const std::vector<std::string> metrics = ListMetrics(values);
  if (metrics.empty()) context.Refuse(kMetric, "needs curriculum_metrics, which name none");
  std::string length;
  for (const std::string& metric : metrics) {
    const CurriculumPath path = CurriculumPath::Metric(metric);
    for (const char* name : {"difficulty_type", "clustering_type"}) {
      if (!path.Value(values, name).is_null() || values.IsBroken(Key(path.Of(name)))) continue;
      context.Refuse(Key(path.Of(name)), "is missing: curriculum_learning needs it");
      return;
    }
    if (!CutsSamples(values, metric)) {
      CheckChoice(context, metric);
      continue;
    }
    CheckCut(context, metric);
    if (IsLength(metric) && !std::exchange(length, metric).empty()) {
      context.Refuse(Key(path.Of("clustering_type")),
                     "makes two lengths that samples are cut to: leave one of them out");
    }
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

// Returns the layers that drop tokens; nothing if the list does not name layers of the model.
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

// With sequence parallelism, attention covers full samples, and each rank holds a part.
void LengthsAreOfWholeSamples(RuleContext& context) {
  const Json ranks = context.values.Get(keys::kSequenceParallelSize);
  if (!ranks.is_number() || ranks <= Json(1)) return;
  const auto refuse = [&](Key key) {
    context.Refuse(key, "cannot be combined with sequence_parallel_size " + ranks.dump() +
                            ": what it leaves of a sample is not cut among ranks");
  };
  for (const CurriculumInUse& curriculum : ListCurricula(context.values)) {
    if (curriculum.cuts) refuse(HasLegacyCurriculum(context.values) ? kLegacy : kMetric);
  }
  if (HasRandomLtd(context.values)) refuse(kLtd);
}

constexpr Rule kRules[] = {
    {"CurriculumNeedsItsKeys", {kLegacy, kMetric}, CurriculumNeedsItsKeys},
    {"MetricsAreKnown", {kMetric}, MetricsAreKnown},
    {"CurriculumIsDefined", {kLegacy, kMetric}, CurriculumIsDefined},
    {"RandomLtdNeedsItsKeys", {kLtd}, RandomLtdNeedsItsKeys},
    {"RandomLtdIsDefined", {kLtd}, RandomLtdIsDefined},
    {"DynamicBatchingIsDefined",
     {keys::kDataEfficiencyDataSamplingDynamicBatchingEnabled},
     DynamicBatchingIsDefined},
    {"LengthsAreOfWholeSamples", {keys::kSequenceParallelSize}, LengthsAreOfWholeSamples},
};

}  // namespace

std::span<const Rule> DataEfficiencyRules() { return kRules; }

DataEfficiency ReadDataEfficiency(const Values& values) {
  DataEfficiency read;
  for (const CurriculumInUse& curriculum : ListCurricula(values)) {
    if (curriculum.cuts) read.curriculum = ReadCurriculum(values, curriculum.path);
  }
  if (HasMetricCurriculum(values)) {
    for (const std::string& metric : ListMetrics(values)) {
      if (CutsSamples(values, metric)) continue;
      read.sample_metrics.push_back(ReadSampleMetric(values, metric));
    }
  }
  read.dynamic_batching = ReadDynamicBatching(values);
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
