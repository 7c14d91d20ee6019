#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/check/values.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/dynamic_batching.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/sections.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

bool IsOn(const Values& values, std::initializer_list<Key> switches) {
  return std::all_of(switches.begin(), switches.end(),
                     [&](Key key) { return values.Get(key) == true; });
}

// The path of a curriculum in a ds_config: the older section `curriculum_learning`, or a metric of
// data_efficiency.
class CurriculumPath {
 public:
  static CurriculumPath Legacy() { return CurriculumPath("curriculum_learning."); }
  static CurriculumPath Metric(const std::string& name);

  // Returns the path of a curriculum's key in the file.
  std::string Of(std::string_view key) const { return prefix_ + std::string(key); }
  // Return the file's value of the key, in the curriculum or in its schedule_config; null without
  // one.
  Json Value(const Values& values, std::string_view key) const;
  Json ScheduleValue(const Values& values, std::string_view key) const;

 private:
  explicit CurriculumPath(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string prefix_;
};

constexpr std::string_view kMetrics =
    "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.";

Json Find(const Values& values, const std::string& path) {
  const auto entry = values.entries().find(path);
  return entry == values.entries().end() ? Json() : entry->second.value;
}

CurriculumPath CurriculumPath::Metric(const std::string& name) {
  return CurriculumPath(std::string(kMetrics) + name + ".");
}

Json CurriculumPath::Value(const Values& values, std::string_view key) const {
  return Find(values, Of(key));
}

// A metric's schedule_config is one value, an object.
Json CurriculumPath::ScheduleValue(const Values& values, std::string_view key) const {
  const Json schedule_config = Find(values, Of("schedule_config"));
  if (schedule_config.is_object()) return schedule_config.value(std::string(key), Json());
  return Find(values, Of("schedule_config." + std::string(key)));
}

// Returns the names of the metrics in the file, each once.
std::vector<std::string> ListMetrics(const Values& values) {
  std::vector<std::string> names;
  for (const auto& [path, entry] : values.entries()) {
    if (!std::string_view(path).starts_with(kMetrics)) continue;
    const std::string rest = path.substr(kMetrics.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

// Returns true if a metric truncates samples to a length (single_cluster in DeepSpeed's terms),
// false if it selects samples.
bool TruncatesSamples(const Values& values, const std::string& metric) {
  return CurriculumPath::Metric(metric).Value(values, "clustering_type") == "single_cluster";
}

// Returns the keys of schedule_config that a schedule_type needs; none for an unknown type.
std::vector<std::string_view> NeededBySchedule(const Json& type) {
  if (type == "fixed_discrete") return {"difficulty", "max_step"};
  if (type == "fixed_linear") return {"total_curriculum_step", "difficulty_step"};
  if (type == "fixed_root") return {"total_curriculum_step", "difficulty_step", "root_degree"};
  return {};
}

// Requires values without errors.
CurriculumConfig ReadCurriculum(const Values& values, const CurriculumPath& path) {
  CurriculumConfig curriculum{.min_difficulty = path.Value(values, "min_difficulty"),
                              .max_difficulty = path.Value(values, "max_difficulty")};
  const auto shape = [&](std::string_view name) { return path.ScheduleValue(values, name); };
  const Json type = path.Value(values, "schedule_type");
  if (type == "fixed_discrete") {
    curriculum.difficulty = shape("difficulty").get<std::vector<std::int64_t>>();
    curriculum.max_step = shape("max_step").get<std::vector<std::int64_t>>();
    return curriculum;
  }
  curriculum.total_curriculum_step = shape("total_curriculum_step");
  curriculum.difficulty_step = shape("difficulty_step");
  if (type == "fixed_root") curriculum.root_degree = shape("root_degree");
  return curriculum;
}

SampleMetric ReadSampleMetric(const Values& values, const std::string& name) {
  const CurriculumPath path = CurriculumPath::Metric(name);
  const auto text = [&](std::string_view key) {
    const Json value = path.Value(values, key);
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  return {.name = name,
          .index_to_sample_path = text("index_to_sample_path"),
          .index_to_metric_path = text("index_to_metric_path"),
          .by_percentile = text("difficulty_type") == "percentile",
          .difficulty = ReadCurriculum(values, path)};
}

constexpr Key kBatching = keys::kDataEfficiencyDataSamplingDynamicBatchingEnabled;
constexpr Key kMostTokensOfBatch = keys::kDataEfficiencyDataSamplingDynamicBatchingMaxTokens;
constexpr Key kLeastSamples = keys::kDataEfficiencyDataSamplingDynamicBatchingMinBatchSize;
constexpr Key kMostSamples = keys::kDataEfficiencyDataSamplingDynamicBatchingMaxBatchSize;

bool HasDynamicBatching(const Values& values) {
  return IsOn(values,
              {keys::kDataEfficiencyEnabled, keys::kDataEfficiencyDataSamplingEnabled, kBatching});
}

// A rule of the section data_efficiency.
void CheckDynamicBatching(RuleContext& context) {
  const Values& values = context.values;
  if (!HasDynamicBatching(values)) return;
  if (values.Get(kMostTokensOfBatch).is_null() && !values.IsBroken(kMostTokensOfBatch)) {
    context.Refuse(kMostTokensOfBatch, "is missing: dynamic_batching needs it");
  }
  const Json most = values.Get(kMostSamples);
  if (most.is_number() && most < values.Get(kLeastSamples)) {
    context.Refuse(kMostSamples, "must not be below min_batch_size");
  }
  if (context.IsOn(keys::kCurriculumLearningEnabled) ||
      context.IsOn(keys::kDataEfficiencyDataSamplingCurriculumLearningEnabled)) {
    context.Refuse(kBatching,
                   "cannot be combined with curriculum learning: which samples a micro-batch has "
                   "follows from their lengths then, not from the step");
  }
  const Json ranks = values.Get(keys::kSequenceParallelSize);
  if (ranks.is_number() && ranks > Json(1)) {
    context.Refuse(kBatching, "cannot be combined with sequence_parallel_size " + ranks.dump() +
                                  ": micro-batches are as long as their longest sample, which "
                                  "need not divide among ranks");
  }
}

// Returns nothing where it is off. Requires values without errors.
std::optional<DynamicBatching> ReadDynamicBatching(const Values& values) {
  if (!HasDynamicBatching(values)) return std::nullopt;
  using Scaling = DynamicBatching::RateScaling;
  using Picking = DynamicBatching::Picking;
  const Json scaling = values.Get(keys::kDataEfficiencyDataSamplingDynamicBatchingLrScalingMethod);
  const Json picking =
      values.Get(keys::kDataEfficiencyDataSamplingDynamicBatchingSequencePickingOrder);
  const Json path = values.Get(keys::kDataEfficiencyDataSamplingDynamicBatchingMetricsPath);
  const Json most = values.Get(kMostSamples);
  DynamicBatching read{
      .max_tokens = values.Get(kMostTokensOfBatch),
      .min_batch_size = values.Get(kLeastSamples),
      .picking = picking == "random"   ? Picking::kRandom
                 : picking == "seqlen" ? Picking::kLength
                                       : Picking::kDataloader,
      .rate_scaling = scaling == "sqrt"   ? Scaling::kRoot
                      : scaling == "none" ? Scaling::kNone
                                          : Scaling::kLinear,
      .verbose = values.Get(keys::kDataEfficiencyDataSamplingDynamicBatchingVerbose)};
  if (most.is_number()) read.max_batch_size = most.get<std::int64_t>();
  if (path.is_string()) read.metrics_path = path.get<std::string>();
  return read;
}

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

constexpr Key kLegacy = keys::kCurriculumLearningEnabled;
constexpr Key kSampling = keys::kDataEfficiencyDataSamplingEnabled;
constexpr Key kMetric = keys::kDataEfficiencyDataSamplingCurriculumLearningEnabled;
constexpr Key kRouting = keys::kDataEfficiencyDataRoutingEnabled;
constexpr Key kLtd = keys::kDataEfficiencyDataRoutingRandomLtdEnabled;

bool HasLegacyCurriculum(const Values& values) { return IsOn(values, {kLegacy}); }
bool HasMetricCurriculum(const Values& values) {
  return IsOn(values, {keys::kDataEfficiencyEnabled, kSampling, kMetric});
}
bool HasRandomLtd(const Values& values) {
  return IsOn(values, {keys::kDataEfficiencyEnabled, kRouting, kLtd});
}

struct CurriculumInUse {
  CurriculumPath path;
  bool truncates = true;  // false: it selects samples
};

std::vector<CurriculumInUse> ListCurricula(const Values& values) {
  std::vector<CurriculumInUse> curricula;
  if (HasLegacyCurriculum(values)) curricula.push_back({CurriculumPath::Legacy()});
  if (!HasMetricCurriculum(values)) return curricula;
  for (const std::string& metric : ListMetrics(values)) {
    curricula.push_back({CurriculumPath::Metric(metric), TruncatesSamples(values, metric)});
  }
  return curricula;
}

void CheckCurriculumKeys(RuleContext& context) {
  const Values& values = context.values;
  for (const auto& [path, truncates] : ListCurricula(values)) {
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
  } else if (!curriculum.truncates && !std::is_sorted(levels.begin(), levels.end())) {
    context.Refuse(Key(curriculum.path.Of("schedule_config.difficulty")),
                   "must ascend: samples that a step has seen are not taken back");
  }
}

void ReportNoEffect(RuleContext& context, const CurriculumPath& path, const std::string& name,
                    const std::string& reason) {
  const std::string given = path.Of(name.substr(0, name.find('.')));
  context.issues.Warning(path.Of(name), path.Of(name) + " has no effect: " + reason,
                         context.values.PositionOf(Key(given)));
}

// Reports unread keys of a metric's schedule_config. It is one value for the registry, which does
// not check its keys.
void ReportUnreadKeys(RuleContext& context, const CurriculumPath& path, const std::string& type) {
  const Json shape = path.Value(context.values, "schedule_config");
  if (!shape.is_object()) return;
  const auto needed = NeededBySchedule(type);
  for (const auto& item : shape.items()) {
    if (std::find(needed.begin(), needed.end(), item.key()) != needed.end()) continue;
    ReportNoEffect(context, path, "schedule_config." + item.key(), type + " does not read it");
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
  ReportUnreadKeys(context, path, type.get<std::string>());
  if (type == "fixed_discrete") CheckLevels(context, curriculum);
}

void CheckCurriculumValues(RuleContext& context) {
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

void CheckTruncation(RuleContext& context, const std::string& metric) {
  const CurriculumPath path = CurriculumPath::Metric(metric);
  if (!IsLength(metric)) {
    context.Refuse(Key(path.Of("clustering_type")),
                   "is single_cluster, which keeps all samples: only seqlen and seqlen_truncate "
                   "have an effect then (they truncate samples); to select samples by " +
                       metric + " use schedule_based");
  } else if (path.Value(context.values, "difficulty_type") == "percentile") {
    context.Refuse(Key(path.Of("difficulty_type")),
                   "must be value: samples are truncated to a length, not selected by it");
  }
  for (const char* map : {"index_to_sample_path", "index_to_metric_path"}) {
    if (path.Value(context.values, map).is_null()) continue;
    ReportNoEffect(context, path, map, "samples are truncated to a length, not looked up");
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
                   "needs index_to_sample_path: it has the metrics of the rows there");
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

void CheckCurriculumMetrics(RuleContext& context) {
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
    if (!TruncatesSamples(values, metric)) {
      CheckChoice(context, metric);
      continue;
    }
    CheckTruncation(context, metric);
    if (IsLength(metric) && !std::exchange(length, metric).empty()) {
      context.Refuse(Key(path.Of("clustering_type")),
                     "sets a second length to truncate samples to: leave one of them out");
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

void CheckRandomLtdKeys(RuleContext& context) {
  const Values& values = context.values;
  if (!HasRandomLtd(values)) return;
  for (const Key key : kLtdKeys) {
    if (values.IsGiven(key) || values.IsBroken(key)) continue;
    context.Refuse(key, "is missing: random_ltd needs it");
  }
}

void CheckRandomLtdValues(RuleContext& context) {
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
void CheckSampleLengths(RuleContext& context) {
  const Json ranks = context.values.Get(keys::kSequenceParallelSize);
  if (!ranks.is_number() || ranks <= Json(1)) return;
  const auto refuse = [&](Key key) {
    context.Refuse(key, "cannot be combined with sequence_parallel_size " + ranks.dump() +
                            ": sequence ranks do not split truncated samples");
  };
  for (const CurriculumInUse& curriculum : ListCurricula(context.values)) {
    if (curriculum.truncates) refuse(HasLegacyCurriculum(context.values) ? kLegacy : kMetric);
  }
  if (HasRandomLtd(context.values)) refuse(kLtd);
}

constexpr Rule kRules[] = {
    {"CheckCurriculumKeys", {kLegacy, kMetric}, CheckCurriculumKeys},
    {"CheckCurriculumMetrics", {kMetric}, CheckCurriculumMetrics},
    {"CheckCurriculumValues", {kLegacy, kMetric}, CheckCurriculumValues},
    {"CheckRandomLtdKeys", {kLtd}, CheckRandomLtdKeys},
    {"CheckRandomLtdValues", {kLtd}, CheckRandomLtdValues},
    {"CheckDynamicBatching",
     {keys::kDataEfficiencyDataSamplingDynamicBatchingEnabled},
     CheckDynamicBatching},
    {"CheckSampleLengths", {keys::kSequenceParallelSize}, CheckSampleLengths},
};

}  // namespace

std::span<const Rule> DataEfficiencyRules() { return kRules; }

DataEfficiency ReadDataEfficiency(const Values& values) {
  DataEfficiency read;
  for (const CurriculumInUse& curriculum : ListCurricula(values)) {
    if (curriculum.truncates) read.curriculum = ReadCurriculum(values, curriculum.path);
  }
  if (HasMetricCurriculum(values)) {
    for (const std::string& metric : ListMetrics(values)) {
      if (TruncatesSamples(values, metric)) continue;
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

bool DataEfficiencyOmitsKey(const Values& values, Key key) {
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
