#pragma once

// The curricula of a ds_config as its keys spell them: the older section `curriculum_learning`, and
// the metrics of data_efficiency's. CurriculumPath names one of them.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/check/values.h"
#include "runtime/config/curriculum.h"

namespace ds::config {

class CurriculumPath {
 public:
  static CurriculumPath Legacy() { return CurriculumPath("curriculum_learning."); }
  static CurriculumPath Metric(const std::string& name);

  // The path of a curriculum's key in the file.
  std::string Of(std::string_view key) const { return prefix_ + std::string(key); }
  // Finds what the file has under it, or under it in schedule_config; null without.
  nlohmann::ordered_json Value(const Values& values, std::string_view key) const;
  nlohmann::ordered_json ScheduleValue(const Values& values, std::string_view key) const;

 private:
  explicit CurriculumPath(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string prefix_;
};

// The names of the metrics that the file has, each once.
std::vector<std::string> ListMetrics(const Values& values);

// Tells whether a metric cuts samples to a length (in DeepSpeed's terms its samples are of a single
// cluster) or says which of them are seen.
bool CutsSamples(const Values& values, const std::string& metric);

// The keys of schedule_config that a schedule_type takes; none for an unknown type.
std::vector<std::string_view> NeededBySchedule(const nlohmann::ordered_json& type);

// Requires values without errors.
CurriculumConfig ReadCurriculum(const Values& values, const CurriculumPath& path);
SampleMetric ReadSampleMetric(const Values& values, const std::string& name);

}  // namespace ds::config
