#pragma once

// ReadValues reads the tree of a config file key by key: known names, aliases, types, ranges,
// "auto", and features that are not built. Rules (rule.h) check keys against each other.

#include <nlohmann/json.hpp>

#include "runtime/base/positioned_json.h"
#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/values.h"

namespace ds::config {

enum class UnknownKeys { kRefused, kIgnored };

// Fills `values` with the file's values and logs every problem. Returns the same config in plain
// form: names and values in the registry's spelling, without null, "auto" and sections that hold
// nothing else.
//
// Comments are skipped: keys that begin with "_", "#" or "//" or are called "comment", at any
// level, and the top-level key `origins`, where a resolved config records the source of each value.
// Ignored unknown keys make one warning.
nlohmann::ordered_json ReadValues(const JsonNode& root, Values* values, IssueLog* issues,
                                  UnknownKeys unknown = UnknownKeys::kRefused);

}  // namespace ds::config
