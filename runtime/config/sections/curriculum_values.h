#pragma once

// Reads the curricula of a ds_config: the older section `curriculum_learning`, and the metrics of
// data_efficiency. A CurriculumPath names one of these.

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

  // Returns the path of a curriculum's key in the file.
  std::string Of(std::string_view key) const { return prefix_ + std::string(key); }
  // Return the file's value of the key, in the curriculum or in its schedule_config; null without
  // one.
  nlohmann::ordered_json Value(const Values& values, std::string_view key) const;
  nlohmann::ordered_json ScheduleValue(const Values& values, std::string_view key) const;

 private:
  explicit CurriculumPath(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string prefix_;
};

// Returns the names of the metrics in the file, each once.
std::vector<std::string> ListMetrics(const Values& values);

// Returns true if a metric truncates samples to a length (single_cluster in DeepSpeed's terms),
// false if it selects samples.
bool CutsSamples(const Values& values, const std::string& metric);

// Returns the keys of schedule_config that a schedule_type needs; none for an unknown type.
std::vector<std::string_view> NeededBySchedule(const nlohmann::ordered_json& type);

// Requires values without errors.
CurriculumConfig ReadCurriculum(const Values& values, const CurriculumPath& path);
SampleMetric ReadSampleMetric(const Values& values, const std::string& name);

}  // namespace ds::config
