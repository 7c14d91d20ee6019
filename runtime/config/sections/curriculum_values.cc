#include "runtime/config/sections/curriculum_values.h"

#include <cstdint>

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMetrics =
    "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.";

Json Find(const Values& values, const std::string& path) {
  const auto entry = values.entries().find(path);
  return entry == values.entries().end() ? Json() : entry->second.value;
}

}  // namespace

CurriculumPath CurriculumPath::Metric(const std::string& name) {
  return CurriculumPath(std::string(kMetrics) + name + ".");
}

Json CurriculumPath::Value(const Values& values, std::string_view key) const {
  return Find(values, Of(key));
}

// A metric's schedule_config is one value, an object.
Json CurriculumPath::ScheduleValue(const Values& values, std::string_view key) const {
  const Json whole = Find(values, Of("schedule_config"));
  if (whole.is_object()) return whole.value(std::string(key), Json());
  return Find(values, Of("schedule_config." + std::string(key)));
}

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

bool CutsSamples(const Values& values, const std::string& metric) {
  return CurriculumPath::Metric(metric).Value(values, "clustering_type") == "single_cluster";
}

std::vector<std::string_view> NeededBySchedule(const Json& type) {
  if (type == "fixed_discrete") return {"difficulty", "max_step"};
  if (type == "fixed_linear") return {"total_curriculum_step", "difficulty_step"};
  if (type == "fixed_root") return {"total_curriculum_step", "difficulty_step", "root_degree"};
  return {};
}

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

}  // namespace ds::config
