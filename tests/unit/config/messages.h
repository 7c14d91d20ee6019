#pragma once

// Helpers that the tests of rules share.

#include <string>
#include <vector>

#include "runtime/config/file/check_config.h"
#include "runtime/config/file/resolved_config.h"

namespace ds::config {

inline std::vector<std::string> Messages(const std::vector<Issue>& issues) {
  std::vector<std::string> messages;
  messages.reserve(issues.size());
  for (const Issue& issue : issues) messages.push_back(issue.message);
  return messages;
}

// The messages of a config that has these members beside a batch size of 8, for 2 ranks.
inline CheckResult CheckWith(const std::string& members) {
  return CheckConfig("{\"train_batch_size\": 8, " + members + "}", "ds.json", 2);
}

inline std::string OriginOf(const CheckResult& result, const std::string& key) {
  return result.origins.value(key, "");
}

// Null for a key that the resolved config does not have.
inline nlohmann::ordered_json ValueOf(const CheckResult& result, const std::string& key) {
  const nlohmann::ordered_json* const value = FindIn(result.resolved, key);
  return value == nullptr ? nlohmann::ordered_json() : *value;
}

}  // namespace ds::config
