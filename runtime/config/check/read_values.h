#pragma once

// Reads the tree of a config file key by key: known names, aliases, types, ranges, "auto", and what
// is not built. What several keys say together is the rules' business (rule.h).

#include <nlohmann/json.hpp>

#include "runtime/base/positioned_json.h"
#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/values.h"

namespace ds::config {

// Fills `values` with what the file gives and logs every problem. Returns the same config in plain
// form: names and values in the registry's spelling, without null and "auto" and without sections
// that hold nothing else.
nlohmann::ordered_json ReadValues(const JsonNode& root, Values* values, IssueLog* issues);

}  // namespace ds::config
