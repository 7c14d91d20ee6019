#pragma once

#include <string>
#include <vector>

#include "runtime/config/check_config.h"

namespace ds::config {

inline std::vector<std::string> Messages(const std::vector<Issue>& issues) {
  std::vector<std::string> messages;
  messages.reserve(issues.size());
  for (const Issue& issue : issues) messages.push_back(issue.message);
  return messages;
}

}  // namespace ds::config
