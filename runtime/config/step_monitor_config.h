#pragma once

// Files with the metrics of each step, for other tools; a member of DsConfig.

#include <string>

namespace ds::config {

struct StepMonitorConfig {
  bool enabled = false;
  std::string output_path;                    // relative to the working directory of the first rank
  std::string job_name = "DeepSpeedJobName";  // a folder in output_path
};

}  // namespace ds::config
