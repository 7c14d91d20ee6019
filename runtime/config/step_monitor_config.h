#pragma once

// Files for other tools that hold numbers of each step: a part of DsConfig.

#include <string>

namespace ds::config {

struct StepMonitorConfig {
  bool enabled = false;
  std::string output_path;                    // relative to the working directory of the first rank
  std::string job_name = "DeepSpeedJobName";  // a folder in it
};

}  // namespace ds::config
